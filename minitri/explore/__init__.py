"""The stage explorer: what each stage shows, and what belongs to what across them.

trace.py says for every line of every stage which nodes of the graph it comes from, and for every
node where it stands in the source. document.py makes plain data of that and of drawings (drawing.py,
layout.py); page.py makes one HTML file of the data with what is in page/. Nothing else imports this
package but the front doors, when asked for a page: it only reads.
"""
