"""The same faults for dayjob and for its peers, each at its safest documented setting, judged by one ledger."""
