"""Reads traces that profilers wrote (XPlane, Kineto); calibrate/fit/profile.py and traced_links.py fit a workload and links to them."""
