"""The stage explorer: one HTML file that shows a program at every stage, and what belongs together.

    document.py   a compilation as plain data          page.py    that data as one HTML file
    layout.py     where the boxes of a graph go        page/      the page: HTML, CSS, JavaScript
    drawing.py    the graph, drawn

Nothing imports it but the front doors: the command line and `Program.explore`.
"""
