/* The protocol between worker pools and Redis, small enough to be searched whole.

One d_step is one script: it happens at once. Between two of them anything may happen: an answer is lost, a request
arrives late, a process dies or sleeps past its lease, Redis forgets an answered exchange, a pool stops.

Asserted after every script: each accepted job is in exactly one place, the places of the limit are those of the held
attempts and never more than the limit, an outcome changes only the attempt that it is of, and nothing is given back as
rewound unless Redis went back in time. A run that ends does so with every job done (else: invalid end state), and every
run ends (pan -l finds no cycle).

Each name in the list that test_model.py keeps breaks one rule when it is defined, and must be found out. */

#ifndef JOBS
#define JOBS 2
#endif
#ifndef FAULTS
#define FAULTS 2
#endif
#ifndef LIMIT
#define LIMIT 2
#endif
#ifndef SLOTS
#define SLOTS 2
#endif
#ifndef FAILS
#define FAILS 1
#endif
#ifndef BACKS
#define BACKS 1
#endif
#ifndef CHORES
#define CHORES 1
#endif
#ifndef PRODUCERS
#define PRODUCERS 0
#endif
#ifndef STOPS
#define STOPS 1
#endif
#define IDS (3 + FAULTS + STOPS)
#define TOKENS 10

/* Of an id in Redis. */
#define UNUSED 0
#define LIVE 1
#define CONDEMNED 2
#define GONE 3

/* Of an attempt, as its pool sees it. */
#define RUN 1
#define OK_ 2
#define FAIL 3
#define BACK 4
#define REWIND 5
#define SENT 6

/* Of an answer. */
#define FINE 0
#define AGAIN 1
#define REWOUND 2
#define LATE 3
#define REFUSED 4

#define AT(i, t) ((i) * TOKENS + (t))

/* Redis. A token is a number under the id of its pool; `hash` has job + 1 for each. */
byte queue[JOBS], retry[JOBS], done[JOBS];
byte hash[IDS * TOKENS];
bit place[IDS * TOKENS];
byte reg[IDS], last[IDS];
bit sent;
byte counter;
/* Attempts that count for the limit, as of the last script. */
byte taken;

/* What may still go wrong, and what went wrong. */
byte faults = FAULTS, fails = FAILS, backs = BACKS, stops = STOPS;
bit went_back, dead[IDS], accepted[JOBS];
byte next_id;

/* A request on its way, and the answer; used inside one step only. */
byte w_id, w_n, w_first, w_room, w_out[TOKENS], w_job[TOKENS], r_status, r_held;
byte i_, j_, t_, k_, n_;
/* What Redis was before an exchange that it forgets. */
byte b_queue[JOBS], b_retry[JOBS], b_done[JOBS], b_hash[TOKENS], b_last, b_counter;

/* Copies that the network keeps for later. */
bit copied, copied_enqueue;
byte c_id, c_n, c_first, c_room, c_out[TOKENS], c_job[TOKENS];

#define ALL_DONE (done[0] == 1 && done[JOBS - 1] == 1 && (JOBS < 3 || done[1] == 1))

inline count_held() {
  n_ = 0;
  for (i_ : 0 .. IDS - 1) {
    if
    :: reg[i_] == LIVE || reg[i_] == CONDEMNED ->
       for (t_ : 1 .. TOKENS - 1) { n_ = n_ + (hash[AT(i_, t_)] > 0) }
    :: else
    fi
  }
  i_ = 0; t_ = 0
}

inline running_now() {   /* as the limit counts */
#ifdef COUNTER_NOT_SET
  n_ = counter
#else
  n_ = 0;
  for (i_ : 0 .. IDS - 1) {
    for (t_ : 1 .. TOKENS - 1) { n_ = n_ + place[AT(i_, t_)] }
  }
  i_ = 0; t_ = 0
#endif
}

inline check() {
  for (j_ : 0 .. JOBS - 1) {
    n_ = queue[j_] + retry[j_] + done[j_];
    for (i_ : 0 .. IDS - 1) {
      for (t_ : 1 .. TOKENS - 1) {
        n_ = n_ + (hash[AT(i_, t_)] == j_ + 1 && (reg[i_] == LIVE || reg[i_] == CONDEMNED));
        assert(place[AT(i_, t_)] == (hash[AT(i_, t_)] > 0))
      }
    }
    assert(n_ == accepted[j_])
  }
  count_held();
  assert(n_ <= LIMIT);
#ifdef COUNTER_NOT_SET
  assert(counter == n_);
#endif
  running_now();
  taken = n_;
  i_ = 0; j_ = 0; t_ = 0; n_ = 0
}

inline settle(t) {
  k_ = t;
#ifdef FENCE_BY_POOL
  /* Any attempt of this job that the pool holds will do. */
  k_ = 0;
  for (t_ : 1 .. TOKENS - 1) {
    if
    :: hash[AT(w_id, t_)] == w_job[t] -> k_ = t_
    :: else
    fi
  }
  if
  :: k_ == 0 -> k_ = t
  :: else
  fi;
#endif
#ifdef COUNTER_NOT_SET
  counter = counter - (counter > 0);
#endif
#ifdef NO_FENCE
  /* The outcome is applied whether or not the attempt is held. */
  if
  :: w_out[t] == OK_ -> done[w_job[t] - 1]++
  :: w_out[t] == FAIL -> retry[w_job[t] - 1]++
  :: else -> queue[w_job[t] - 1]++
  fi;
  hash[AT(w_id, t)] = 0;
  place[AT(w_id, t)] = 0;
#else
  if
  :: hash[AT(w_id, k_)] > 0 ->
     assert(k_ == t);
     assert(hash[AT(w_id, k_)] == w_job[t]);
     if
     :: w_out[t] == OK_ -> done[w_job[t] - 1]++
     :: w_out[t] == FAIL -> retry[w_job[t] - 1]++
     :: else -> queue[w_job[t] - 1]++
     fi;
     hash[AT(w_id, k_)] = 0;
     place[AT(w_id, k_)] = 0
  :: else   /* late: nothing changes */
  fi;
#endif
  k_ = 0
}

inline exchange() {
  if
#ifndef CONDEMNED_NOT_REFUSED
  :: reg[w_id] != LIVE -> r_status = REFUSED
#endif
  :: else ->
     if
     :: w_n < last[w_id] -> r_status = LATE
     :: w_n == last[w_id] -> r_status = AGAIN
     :: w_n > last[w_id] + 1 -> r_status = REWOUND
     :: else -> r_status = FINE
     fi;
#ifdef RESEND_APPLIED_AGAIN
     if
     :: r_status == AGAIN -> r_status = FINE
     :: else
     fi;
#endif
#ifdef LATE_COPY_APPLIED
     if
     :: r_status == LATE -> r_status = FINE
     :: else
     fi;
#endif
     if
     :: r_status == FINE || r_status == REWOUND ->
        for (i_ : 1 .. TOKENS - 1) {
          if
          :: w_out[i_] > 0 -> settle(i_)
          :: else
          fi
        }
        i_ = 0;
        k_ = w_first;
        for (j_ : 0 .. JOBS - 1) {
          running_now();
          if
          :: queue[j_] > 0 && w_room > 0 && n_ < LIMIT ->
             assert(k_ < TOKENS);
             hash[AT(w_id, k_)] = j_ + 1;
             place[AT(w_id, k_)] = 1;
             counter++;
             queue[j_]--;
             w_room--;
             k_++
          :: else
          fi
        }
        k_ = 0; j_ = 0; n_ = 0;
        last[w_id] = (w_n > last[w_id] -> w_n : last[w_id])
     :: else
     fi;
  fi;
#ifndef COUNTER_NOT_SET
  counter = 0;
#endif
  r_held = 0;
  for (t_ : 1 .. TOKENS - 1) { r_held = r_held + (hash[AT(w_id, t_)] > 0) }
  t_ = 0;
  check()
}

inline forget_request() {
  w_id = 0; w_n = 0; w_first = 0; w_room = 0; r_status = 0; r_held = 0;
  for (t_ : 0 .. TOKENS - 1) { w_out[t_] = 0; w_job[t_] = 0 }
  t_ = 0
}

#define ENDED(t) (st[t] > RUN && st[t] < SENT)
#define OUTCOMES (ENDED(1) || ENDED(2) || ENDED(3) || \
  ENDED(4) || ENDED(5) || ENDED(6) || \
  ENDED(7) || ENDED(8) || ENDED(9))
#define NOTHING_HELD (!st[1] && !st[2] && !st[3] && \
  !st[4] && !st[5] && !st[6] && \
  !st[7] && !st[8] && !st[9])
#define RUNNING ((st[1] == RUN) + (st[2] == RUN) + (st[3] == RUN) + \
  (st[4] == RUN) + (st[5] == RUN) + (st[6] == RUN) + \
  (st[7] == RUN) + (st[8] == RUN) + (st[9] == RUN))
#ifdef LOST_OUTCOMES_SENT
#define HAUNTS(status) (status <= RUN)
#else
#define HAUNTS(status) (status == 0)
#endif
#define READY (!open && !reconciling)
#define FETCHES (SOME_FETCHABLE && taken < LIMIT && !stopping && RUNNING < SLOTS)
#define SOME_FETCHABLE (queue[0] > 0 || queue[JOBS - 1] > 0 || JOBS > 2 && queue[1] > 0)

/* What a pool does; the names are those of its own variables. */

/* forget what ran, and go on under an id that was never used */
inline begin() {
#ifdef ID_USED_AGAIN
  if
  :: id > 0 && !dead[id] && reg[id] == CONDEMNED
  :: else ->
#endif
  next_id++;
  id = next_id;
  assert(id < IDS);
#ifdef ID_USED_AGAIN
  fi;
#endif
  reg[id] = LIVE;
  last[id] = 0;
  n = 0; token = 1; open = 0; reconciling = 0; look = 0; stopping = 0; first = 0; room = 0; ghost_token = 0; ghost_job = 0;
  for (t_ : 1 .. TOKENS - 1) {
#ifdef LOST_OUTCOMES_SENT
    if
    :: st[t_] == RUN -> ghost_token = t_; ghost_job = job[t_]
    :: else
    fi;
#endif
    st[t_] = 0; job[t_] = 0;
    out[t_] = 0
  }
  t_ = 0
}

inline prepare() {
  n++;
  open = 1;
  look = 0;
  first = token;
  room = (stopping || RUNNING >= SLOTS -> 0 : SLOTS - RUNNING);
  for (t_ : 1 .. TOKENS - 1) {
    if
    :: st[t_] > RUN && st[t_] < SENT -> out[t_] = st[t_]; st[t_] = SENT
    :: else
    fi
  }
  t_ = 0
}

/* the outcome of an attempt that was settled before */
inline haunt() {
  out[ghost_token] = OK_; job[ghost_token] = ghost_job;
  st[ghost_token] = (st[ghost_token] == RUN -> SENT : st[ghost_token])
}

inline send() {
  w_id = id; w_n = n; w_first = first; w_room = room;
  for (t_ : 1 .. TOKENS - 1) { w_out[t_] = out[t_]; w_job[t_] = job[t_] }
  t_ = 0;
  exchange()
}

inline take() {
  if
  :: r_status == REFUSED -> begin()
  :: else ->
     assert(r_status != LATE);
     for (t_ : 1 .. TOKENS - 1) {
       if
       :: out[t_] > 0 ->
          if
          :: t_ == ghost_token -> ghost_token = 0; ghost_job = 0
          :: out[t_] == FAIL && faults > 0 && ghost_token == 0 ->
             /* its thread has not ended: what it says later leaves the process by mistake */
             ghost_token = t_; ghost_job = job[t_]
          :: else
          fi;
          out[t_] = 0; st[t_] = 0; job[t_] = 0
       :: else
       fi;
       if
       :: t_ >= first && hash[AT(id, t_)] > 0 -> st[t_] = RUN; job[t_] = hash[AT(id, t_)]; token = t_ + 1
       :: else
       fi
     }
     n_ = 0;
     for (t_ : 1 .. TOKENS - 1) { n_ = n_ + (st[t_] > 0) }
     reconciling = (r_status == REWOUND || n_ != r_held);
#ifdef NOT_RECONCILED
     reconciling = 0;
#endif
     open = 0; first = 0; room = 0; t_ = 0; n_ = 0
  fi;
  forget_request()
}

inline reconcile() {
  reconciling = 0;
  for (t_ : 1 .. TOKENS - 1) {
    if
    :: hash[AT(id, t_)] > 0 && st[t_] == 0 ->
       assert(went_back);
       st[t_] = REWIND; job[t_] = hash[AT(id, t_)];
       token = (t_ >= token -> t_ + 1 : token)
    :: hash[AT(id, t_)] == 0 && st[t_] > 0 -> st[t_] = 0; job[t_] = 0
    :: else
    fi
  }
  t_ = 0
}

inline remember_redis() {
  for (j_ : 0 .. JOBS - 1) { b_queue[j_] = queue[j_]; b_retry[j_] = retry[j_]; b_done[j_] = done[j_] }
  for (t_ : 1 .. TOKENS - 1) { b_hash[t_] = hash[AT(id, t_)] }
  b_last = last[id]; b_counter = counter; j_ = 0; t_ = 0
}

inline go_back() {
  for (j_ : 0 .. JOBS - 1) {
    queue[j_] = b_queue[j_]; retry[j_] = b_retry[j_]; done[j_] = b_done[j_];
    b_queue[j_] = 0; b_retry[j_] = 0; b_done[j_] = 0
  }
  for (t_ : 1 .. TOKENS - 1) { hash[AT(w_id, t_)] = b_hash[t_]; place[AT(w_id, t_)] = (b_hash[t_] > 0); b_hash[t_] = 0 }
  last[w_id] = b_last; counter = b_counter; b_last = 0; b_counter = 0; j_ = 0; t_ = 0;
  went_back = 1;
#ifndef COPY_OUTLIVES_REWIND
  copied = 0; c_id = 0; c_n = 0; c_first = 0; c_room = 0;
  for (t_ : 1 .. TOKENS - 1) { c_out[t_] = 0; c_job[t_] = 0 }
  t_ = 0;
#endif
#ifndef NO_LOOK_AFTER_A_CUT
  look = 1;
#endif
  check()
}

inline leave() {
  if
  :: reg[id] == LIVE ->
     k_ = 0;
     for (t_ : 1 .. TOKENS - 1) { k_ = k_ + (hash[AT(id, t_)] > 0) }
     t_ = 0;
#ifdef LEAVE_FORGETS
     k_ = 0;
#endif
     reg[id] = (k_ > 0 -> CONDEMNED : GONE);
     k_ = 0;
     check()
  :: else
  fi;
  dead[id] = 1;
  begin()
}

inline end_all(how) {
  for (t_ : 1 .. TOKENS - 1) {
    if
    :: st[t_] == RUN -> st[t_] = how
    :: else
    fi
  }
  t_ = 0
}

inline end_first(how) {
  k_ = 0;
  for (t_ : 1 .. TOKENS - 1) {
    if
    :: st[t_] == RUN && !k_ -> st[t_] = how; k_ = 1
    :: else
    fi
  }
  t_ = 0; k_ = 0
}

/* What can become of a request: answered; answered in vain; cut off, to arrive later; answered, and then forgotten by
   Redis, whose connections do not live on (a copy on its way to what was forgotten goes with them). */
inline over_the_wire() {
  if
  :: d_step { send(); take() }
  :: d_step { faults > 0 -> faults--; send(); forget_request() }
  :: d_step { faults > 0 && !copied -> faults--; copied = 1;
      c_id = id; c_n = n; c_first = first; c_room = room;
      for (t_ : 1 .. TOKENS - 1) { c_out[t_] = out[t_]; c_job[t_] = (out[t_] > 0 -> job[t_] : 0) }
      t_ = 0 }
  :: d_step { faults > 0 && reg[id] == LIVE -> faults--; remember_redis(); send(); w_id = id; take(); w_id = id; go_back(); w_id = 0 }
  fi
}

/* A pool: one process after another, each with ids of its own. */
proctype Pool() {
  byte id, n, token = 1, first, room, ghost_token, ghost_job;
  byte st[TOKENS], job[TOKENS], out[TOKENS];
  bit open, reconciling, look, stopping;

  d_step { begin() }
  do
  :: ALL_DONE -> break

  /* One exchange at a time. What handlers did meanwhile shows in it and nowhere else, so it is decided here. */
  :: atomic { READY && (OUTCOMES || look || FETCHES) -> d_step { prepare() }; over_the_wire() }
  :: atomic { READY && ghost_token > 0 && HAUNTS(st[ghost_token]) -> d_step { prepare(); haunt() }; over_the_wire() }
  :: atomic { READY && RUNNING > 0 -> d_step { end_all(OK_); prepare() }; over_the_wire() }
  :: atomic { READY && RUNNING > 1 -> d_step { end_first(OK_); prepare() }; over_the_wire() }
  :: atomic { READY && RUNNING > 0 && fails > 0 -> fails--; d_step { end_first(FAIL); prepare() }; over_the_wire() }
  :: atomic { READY && RUNNING > 0 && backs > 0 -> backs--; d_step { end_first(BACK); prepare() }; over_the_wire() }
  :: atomic { open -> over_the_wire() }

  /* Redis and the pool disagree: it reads what Redis holds; that answer may be lost as well */
  :: d_step { reconciling -> reconcile() }
  :: d_step { reconciling && faults > 0 -> faults--; reconciling = 0;
#ifndef RECONCILED_ONCE
      look = 1
#endif
      }

  /* a beat tells that the id is gone */
  :: d_step { !open && reg[id] != LIVE -> begin() }

  /* the process dies, or stops */
  :: d_step { faults > 0 -> faults--; dead[id] = 1; begin() }
  :: d_step { stops > 0 && !stopping -> stops--; stopping = 1; end_all(BACK) }
  :: d_step { stopping && !open && !reconciling && NOTHING_HELD -> leave() }
  :: d_step { stopping && faults > 0 && reg[id] == LIVE -> faults--; leave() }
  od
}

/* Two of them: chores are harmless when two do them at once, or when one is late. */
proctype Chores() {
  byte busy, id, one, seen[TOKENS];

#define MAY_CONDEMN(i) d_step { (i) < IDS && reg[(i) % IDS] == LIVE && dead[(i) % IDS] -> reg[(i) % IDS] = CONDEMNED }
#define MAY_PAUSE(i) d_step { (i) < IDS && reg[(i) % IDS] == LIVE && !dead[(i) % IDS] && faults > 0 -> faults--; reg[(i) % IDS] = CONDEMNED }
#define MAY_READ(i) d_step { (i) < IDS && !busy && reg[(i) % IDS] == CONDEMNED -> busy = 1; id = (i) % IDS; \
    for (t_ : 1 .. TOKENS - 1) { seen[t_] = hash[AT(id, t_)] } t_ = 0 }
#define MAY_SEE(j) d_step { (j) < JOBS && !busy && retry[(j) % JOBS] > 0 -> busy = 2; one = (j) % JOBS }

  do
  :: ALL_DONE -> break
  :: MAY_CONDEMN(1)
  :: MAY_CONDEMN(2)
  :: MAY_CONDEMN(3)
  :: MAY_CONDEMN(4)
  :: MAY_CONDEMN(5)
  :: MAY_CONDEMN(6)
  :: MAY_PAUSE(1)
  :: MAY_PAUSE(2)
  :: MAY_PAUSE(3)
  :: MAY_PAUSE(4)
  :: MAY_READ(1)
  :: MAY_READ(2)
  :: MAY_READ(3)
  :: MAY_READ(4)
  :: MAY_READ(5)
  :: MAY_READ(6)
  :: MAY_SEE(0)
  :: MAY_SEE(1)
  :: MAY_SEE(2)
  :: d_step { busy == 1 ->
      if
      :: reg[id] == CONDEMNED ->
         for (k_ : 1 .. TOKENS - 1) {
           if
#ifdef SWEEP_BLIND
           :: seen[k_] > 0 ->
#else
           :: seen[k_] > 0 && hash[AT(id, k_)] == seen[k_] ->
#endif
              queue[seen[k_] - 1]++;
              hash[AT(id, k_)] = 0;
#ifndef SWEEP_KEEPS_PLACE
              place[AT(id, k_)] = 0;
#endif
#ifdef COUNTER_NOT_SET
              counter = counter - (counter > 0);
#endif
           :: else
           fi
         }
         k_ = 0;
         for (t_ : 1 .. TOKENS - 1) { k_ = k_ + (hash[AT(id, t_)] > 0) }
         t_ = 0;
         if
         :: k_ == 0 -> reg[id] = GONE
         :: else
         fi;
         k_ = 0
#ifdef SWEEP_BLIND
      :: reg[id] != CONDEMNED ->
         for (k_ : 1 .. TOKENS - 1) {
           if
           :: seen[k_] > 0 -> queue[seen[k_] - 1]++
           :: else
           fi
         }
         k_ = 0
#else
      :: else
#endif
      fi;
      check();
      for (t_ : 1 .. TOKENS - 1) { seen[t_] = 0 }
      t_ = 0; busy = 0; id = 0 }
  :: d_step { busy == 2 ->
      if
#ifdef REQUEUE_BLIND
      :: 1 -> queue[one]++; retry[one] = retry[one] - (retry[one] > 0)
#else
      :: retry[one] > 0 -> queue[one]++; retry[one]--
      :: else
#endif
      fi;
      check();
      busy = 0; one = 0 }
  od
}

inline store() {
#ifdef ENQUEUE_WITHOUT_NUMBER
  queue[JOBS - 1]++; accepted[JOBS - 1] = 1;
#else
  if
  :: !sent -> queue[JOBS - 1]++; accepted[JOBS - 1] = 1; sent = 1
  :: else
  fi;
#endif
  check()
}

/* Enqueues the last job; the others are there from the start. */
proctype Producer() {
  do
  :: d_step { store() } -> break
  :: d_step { faults > 0 -> faults--; store() }
  :: d_step { faults > 0 && !copied_enqueue -> faults--; copied_enqueue = 1 }
  od
}

/* Delivers what it kept. */
proctype Network() {
end:
  do
  :: d_step { copied ->
      copied = 0;
      w_id = c_id; w_n = c_n; w_first = c_first; w_room = c_room;
      c_id = 0; c_n = 0; c_first = 0; c_room = 0;
      for (t_ : 1 .. TOKENS - 1) { w_out[t_] = c_out[t_]; w_job[t_] = c_job[t_]; c_out[t_] = 0; c_job[t_] = 0 }
      t_ = 0;
      exchange();
      forget_request() }
  :: d_step { copied_enqueue -> copied_enqueue = 0; store() }
  od
}

init {
  atomic {
    for (j_ : 0 .. JOBS - 1 - PRODUCERS) { queue[j_] = 1; accepted[j_] = 1 }
    j_ = 0;
    run Pool();
    run Pool();
    run Chores();
    if
    :: CHORES > 1 -> run Chores()
    :: else
    fi;
    if
    :: PRODUCERS > 0 -> run Producer()
    :: else
    fi;
    run Network()
  }
}
