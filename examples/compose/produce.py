"""Puts jobs in by name: a producer needs no job code, only the namespace."""

import itertools
import signal
import threading

from dayjob import Enqueuer
from dayjob.errors import StoreError

end = threading.Event()
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda *_: end.set())

enqueuer = Enqueuer("shop")
for order in itertools.count(1):
    try:
        enqueuer.enqueue("charge", order=order, amount=9.5)
        enqueuer.sourced("acme").enqueue("send_mail", to="ada@example.com", subject=f"order {order}")
        if order % 50 == 0:
            enqueuer.enqueue_unique("export", rows=5000)
    except StoreError as error:
        print(error, flush=True)
    if end.wait(0.5):
        break
