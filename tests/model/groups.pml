/* Members of a batch, atomic jobs with a child each: how they end, in every order, with every copy of every outcome.

   Each member is atomic and enqueues one child. Pools die and are swept, outcomes arrive late and twice, operators delete waiting
   members and retry dead ones, and Redis loses its last steps. A rule is broken by defining its name: the search must then find a
   callback or a child that is doubled or missing, or a batch that believes something else than where its members are. */

#ifndef MEMBERS
#define MEMBERS 2
#endif
#ifndef FAULTS
#define FAULTS 2
#endif
#ifndef RETRIES
#define RETRIES 1
#endif
#define TOKENS 6

#define WAITS 0
#define HELD 1
#define DONE 2
#define DEAD 3
#define DELETED 4
#define OVER(m) (place[m] == DONE || place[m] == DEAD || place[m] == DELETED)

/* Redis: where a member is, by which attempt it is held, what the batch believes of it, and the children that are stored. */
byte place[MEMBERS], token[MEMBERS], children[MEMBERS];
bit ended[MEMBERS], dead[MEMBERS];
byte left = MEMBERS;
/* The callbacks that were enqueued, and the moments that asked for them. */
byte completes, successes, deaths;
bit all_ended, all_well, one_dead;

/* What Redis was before the last step, which it may forget. */
byte place_[MEMBERS], token_[MEMBERS], children_[MEMBERS];
bit ended_[MEMBERS], dead_[MEMBERS];
byte left_, completes_, successes_, deaths_;
bit all_ended_, all_well_, one_dead_, kept;

/* The pools: which attempt of a member runs, and the outcomes that are on their way. */
byte runs[MEMBERS], sent_ok[MEMBERS], sent_bad[MEMBERS];
byte faults = FAULTS, retries = RETRIES, next_token = 1;
byte i_, n_, d_;

inline keep() {
  for (i_ : 0 .. MEMBERS - 1) {
    place_[i_] = place[i_]; token_[i_] = token[i_]; children_[i_] = children[i_];
    ended_[i_] = ended[i_]; dead_[i_] = dead[i_]
  }
  i_ = 0; left_ = left;
  completes_ = completes; successes_ = successes; deaths_ = deaths;
  all_ended_ = all_ended; all_well_ = all_well; one_dead_ = one_dead; kept = 1
}

inline forget() {
  for (i_ : 0 .. MEMBERS - 1) {
    place[i_] = place_[i_]; token[i_] = token_[i_]; children[i_] = children_[i_];
    ended[i_] = ended_[i_]; dead[i_] = dead_[i_]
  }
  i_ = 0; left = left_;
  completes = completes_; successes = successes_; deaths = deaths_;
  all_ended = all_ended_; all_well = all_well_; one_dead = one_dead_; kept = 0
}

/* What has happened, by where the members are. */
inline witness() {
  n_ = 0; d_ = 0;
  for (i_ : 0 .. MEMBERS - 1) { n_ = n_ + OVER(i_); d_ = d_ + (place[i_] == DEAD) }
  i_ = 0;
  all_ended = all_ended || n_ == MEMBERS;
  all_well = all_well || (n_ == MEMBERS && d_ == 0);
  one_dead = one_dead || d_ > 0;
  n_ = 0; d_ = 0
}

inline judge() {
  n_ = 0; d_ = 0;
#ifdef COUNTER_NOT_BITS
  n_ = MEMBERS - left;
  for (i_ : 0 .. MEMBERS - 1) { d_ = d_ + dead[i_] }
#else
  for (i_ : 0 .. MEMBERS - 1) { n_ = n_ + ended[i_]; d_ = d_ + dead[i_] }
#endif
  i_ = 0;
  if
#ifdef CALLED_EACH_TIME
  :: n_ == MEMBERS -> completes++; successes = successes + (d_ == 0)
#else
  :: n_ == MEMBERS -> completes = 1; successes = successes || d_ == 0
#endif
  :: else
  fi;
  n_ = 0; d_ = 0
}

inline note_end(m, bad) {
  ended[m] = 1; dead[m] = bad; left = left - (left > 0);
  deaths = deaths || bad;
  judge()
}

inline check() {
  for (i_ : 0 .. MEMBERS - 1) {
    assert(ended[i_] == OVER(i_));
    assert(dead[i_] == (place[i_] == DEAD));
    assert(children[i_] == (place[i_] == DONE))
  }
  i_ = 0;
  assert(completes == all_ended && successes == all_well && deaths == one_dead)
}

/* The outcome of an attempt changes something only while Redis holds that attempt. */
inline settle(m, t, ok) {
  keep();
  if
  :: place[m] == HELD && token[m] == t ->
#ifndef CHILDREN_FIRST
     children[m] = children[m] + ok;
#endif
     if
     :: ok -> place[m] = DONE
     :: else -> place[m] = DEAD
     fi;
     note_end(m, !ok)
  :: else
#ifdef LATE_ENDS_NOTED
     note_end(m, !ok)
#endif
#ifdef COUNTER_NOT_BITS
     left = left - (left > 0)
#endif
  fi;
  witness();
  check()
}

#define MAY_FETCH(m) d_step { place[m] == WAITS && next_token < TOKENS -> \
    keep(); place[m] = HELD; token[m] = next_token; runs[m] = next_token; next_token++; check() }
#define MAY_END_WELL(m) d_step { runs[m] > 0 && sent_ok[m] == 0 -> sent_ok[m] = runs[m]; runs[m] = 0; STORE_CHILD(m) }
#define MAY_END_BADLY(m) d_step { runs[m] > 0 && sent_bad[m] == 0 -> sent_bad[m] = runs[m]; runs[m] = 0 }
/* It arrives; a copy of it may arrive again later. */
#define MAY_ARRIVE(m) d_step { sent_ok[m] > 0 -> settle(m, sent_ok[m], 1); sent_ok[m] = 0 }
#define MAY_ARRIVE_TWICE(m) d_step { sent_ok[m] > 0 && faults > 0 -> faults--; settle(m, sent_ok[m], 1) }
#define MAY_ARRIVE_BADLY(m) d_step { sent_bad[m] > 0 -> settle(m, sent_bad[m], 0); sent_bad[m] = 0 }
/* The pool of an attempt died, or was taken for dead: its outcome may still be on the way. */
#define MAY_SWEEP(m) d_step { place[m] == HELD && faults > 0 -> faults--; keep(); place[m] = WAITS; check() }
#define MAY_SWEEP_DEAD(m) d_step { place[m] == HELD && faults > 0 -> faults--; keep(); place[m] = DEAD; DEATH_NOTED(m); witness(); check() }
#define MAY_DELETE(m) d_step { place[m] == WAITS && retries > 0 -> retries--; keep(); place[m] = DELETED; DELETION_NOTED(m); witness(); check() }
#define MAY_RETRY(m) d_step { place[m] == DEAD && retries > 0 -> retries--; keep(); place[m] = WAITS; REOPENED(m); check() }

#ifdef CHILDREN_FIRST
#define STORE_CHILD(m) children[m]++
#else
#define STORE_CHILD(m) skip
#endif
/* A job that crashed its pools too often is dead. */
#ifdef SWEEP_NOTES_NOTHING
#define DEATH_NOTED(m) skip
#else
#define DEATH_NOTED(m) note_end(m, 1)
#endif
#ifdef DELETION_NOTES_NOTHING
#define DELETION_NOTED(m) skip
#else
#define DELETION_NOTED(m) note_end(m, 0)
#endif
#ifdef RETRY_KEEPS_BITS
#define REOPENED(m) skip
#else
#define REOPENED(m) ended[m] = 0; dead[m] = 0; left++
#endif

active proctype System() {
end:
  do
  :: MAY_FETCH(0)
  :: MAY_FETCH(1)
  :: MAY_END_WELL(0)
  :: MAY_END_WELL(1)
  :: MAY_END_BADLY(0)
  :: MAY_END_BADLY(1)
  :: MAY_ARRIVE(0)
  :: MAY_ARRIVE(1)
  :: MAY_ARRIVE_TWICE(0)
  :: MAY_ARRIVE_TWICE(1)
  :: MAY_ARRIVE_BADLY(0)
  :: MAY_ARRIVE_BADLY(1)
  :: MAY_SWEEP(0)
  :: MAY_SWEEP(1)
  :: MAY_SWEEP_DEAD(0)
  :: MAY_SWEEP_DEAD(1)
  :: MAY_DELETE(0)
  :: MAY_DELETE(1)
  :: MAY_RETRY(0)
  :: MAY_RETRY(1)
  :: d_step { kept && faults > 0 -> faults--; forget(); check() }
  od
}
