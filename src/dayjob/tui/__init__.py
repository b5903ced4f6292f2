"""The live terminal view, `dayjob top`: the same tabs as the web console, over AsyncAdmin."""
