/* Rate limits as the exchange counts them: charges, refunds and windows, in every order and at every time.

   A unit of the rate fills up in one step of the clock. BURST units may start at once; a window has SPAN steps and lets
   WINDOW jobs start. A rule is broken by defining its name: the search must then find a history that exceeds a limit. */

#ifndef BURST
#define BURST 2
#endif
#ifndef WINDOW
#define WINDOW 2
#endif
#ifndef SPAN
#define SPAN 3
#endif
#define ATTEMPTS 5
#define LAST_STEP 7

#define NONE 0
#define FETCHED 1
#define ENDED 2
#define UNDONE 3

#define MAX(a, b) ((a) > (b) -> (a) : (b))
#define MIN(a, b) ((a) < (b) -> (a) : (b))

/* Redis: the rate as one moment, and the set of a window */
byte now = 8, full_at, charged, last;
bit in_window[ATTEMPTS];

/* The attempts: when they started, and the sum of the charges directly after their own */
byte st[ATTEMPTS], at[ATTEMPTS], mark[ATTEMPTS];
bit asked[ATTEMPTS];
byte i_, j_, k_, n_;

inline count_window() {
  n_ = 0;
  for (k_ : 0 .. ATTEMPTS - 1) {
#ifdef WINDOW_TOO_SHORT
    n_ = n_ + (in_window[k_] && at[k_] + SPAN - 1 > now)
#else
    n_ = n_ + (in_window[k_] && at[k_] + SPAN > now)
#endif
  }
  k_ = 0
}

inline charge(i) {
#ifndef NOT_CHARGED
  full_at = MAX(full_at, now) + 1;
#endif
  charged++;
  last = now;
  mark[i] = charged;
  at[i] = now;
  in_window[i] = 1;
  st[i] = FETCHED
}

inline refund(i) {
  in_window[i] = 0;
#ifdef REFUND_OF_LATER_CHARGES
  full_at = full_at - (full_at > 0);
#else
  full_at = MIN(full_at, MAX(full_at - 1, last + charged - mark[i]));
#endif
#ifdef REFUNDED_TWICE
  /* the pool sends it again, and nothing fences it */
  asked[i] = !asked[i];
  st[i] = (asked[i] -> FETCHED : UNDONE)
#else
  st[i] = UNDONE
#endif
}

/* No interval of T steps has more than BURST + T starts that count, and no SPAN steps more than WINDOW. */
inline check() {
  for (i_ : 0 .. ATTEMPTS - 1) {
    if
    :: st[i_] == FETCHED && !asked[i_] || st[i_] == ENDED ->
       for (j_ : 0 .. ATTEMPTS - 1) {
         if
         :: (st[j_] == FETCHED && !asked[j_] || st[j_] == ENDED) && at[j_] >= at[i_] ->
            n_ = 0;
            for (k_ : 0 .. ATTEMPTS - 1) {
              n_ = n_ + ((st[k_] == FETCHED && !asked[k_] || st[k_] == ENDED) && at[k_] >= at[i_] && at[k_] <= at[j_])
            }
            k_ = 0;
            assert(n_ <= BURST + at[j_] - at[i_]);
            assert(at[j_] - at[i_] >= SPAN || n_ <= WINDOW)
         :: else
         fi
       }
       j_ = 0
    :: else
    fi
  }
  i_ = 0; n_ = 0
}

#ifdef BURST_TOO_LARGE
#define ROOM (BURST + 1)
#else
#define ROOM BURST
#endif

#define MAY_START(i) d_step { st[i] == NONE && ((i) == 0 || st[(i) - 1] != NONE) && MAX(full_at, now) + 1 <= now + ROOM -> \
    count_window(); \
    if \
    :: n_ < WINDOW -> n_ = 0; charge(i); check() \
    :: else -> n_ = 0 \
    fi }
#define MAY_END(i) d_step { st[i] == FETCHED && !asked[i] -> st[i] = ENDED }
#define MAY_UNDO(i) d_step { st[i] == FETCHED -> refund(i) }

active proctype Pools() {
end:
  do
  :: d_step { now < 8 + LAST_STEP -> now++ }
  :: MAY_START(0)
  :: MAY_START(1)
  :: MAY_START(2)
  :: MAY_START(3)
  :: MAY_START(4)
  :: MAY_END(0)
  :: MAY_END(1)
  :: MAY_END(2)
  :: MAY_END(3)
  :: MAY_UNDO(0)
  :: MAY_UNDO(1)
  :: MAY_UNDO(2)
  :: MAY_UNDO(3)
  od
}
