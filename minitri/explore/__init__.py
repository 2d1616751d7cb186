"""The stage explorer: a page that shows every stage of a program, and marks which lines of the stages belong together.

provenance.py finds the nodes of the graph that each line of a stage comes from, and the places of each node in the
source. document.py collects these nodes, the drawings (graph_drawing.py) and the guided walk (walk.py) as plain data.
page.py writes the data and the files in page/ as one HTML file.

The package minitri/explore only reads compilations. The command line, `Program` and notebooks import the package when a
user opens a page.
"""
