"""The scaling report: from results to one HTML file that opens offline.

report.py collects results and writes all files. content.py, columns.py, figures.py and tables.py make data of results; render.py puts
them into ``templates/``, whose script draws what follows the reader's choices.
"""
