//! What others defined: Metalink, Link and digest headers, input lists, netrc.
