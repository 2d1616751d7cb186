"""The stage explorer: what each stage shows, and what belongs together across stages.

trace.py says for every line of every stage which nodes of the graph it comes from, and for every node its places in the
source. document.py turns that and drawings (drawing.py) into plain data. page.py makes one HTML file of the
data and the files in page/. Only the command line, `Program` and notebooks import this package, for a page: it only
reads.
"""
