"""Why is a job not running, and can a queue be fetched from? Values first; words.py has the sentence for each."""
