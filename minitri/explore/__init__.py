"""The stage explorer: what each stage shows, and what belongs to what across them.

trace.py says for every line of every stage which nodes of the graph it comes from, and for every
node where it stands in the source. Nothing else imports this package: it only reads.
"""
