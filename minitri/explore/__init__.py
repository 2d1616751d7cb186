"""The stage explorer: a page that shows every stage of a program, and marks which lines of the stages belong together.

For each line of a stage, the module provenance.py finds the graph nodes that the line comes from. It also finds the
places of each node in the source. The module document.py collects the data of a page: the nodes of each line, drawings
of the graph (graph_drawing.py) and a guided tour (guided_walk.py). The module page.py writes one HTML file, which
contains the data of document.py and the scripts and styles of the folder page/.

The package minitri/explore reads compiled programs and never changes them. The command line, `Program` and notebooks
import the package only when a user opens a page.
"""
