"""The stage explorer: what each stage shows, and what belongs together across stages.

provenance.py finds the nodes of the graph that each line of a stage comes from, and the places of each node in the source.
document.py makes plain data of that, of drawings (graph_drawing.py) and of the guided walk (walk.py). page.py writes the data
and the files in page/ as one HTML file.

The package only reads compilations. The command line, `Program` and notebooks import it when somebody wants a page.
"""
