/* The ring's protocol: slot words, worker countdown, grants, acks, death of a consumer.
 *
 * One publisher has the policy and the private ledger (pending, leased), as under the server's mutex. Workers fill slices;
 * the worker that ends the countdown publishes. Consumers read only between a grant and its ack. All relative speeds are
 * explored. The killer ends one consumer between any two of its steps, or none.
 *
 *   no slot refilled while leased   HELD-BY-NOBODY at each refill, and payload checks in the readers
 *   none leaked                     the publisher ends only when all slots are free: a leak is an invalid end state
 *   order kept per lane             IN-ORDER at each grant that is read
 *
 * Locals are zeroed after their last use, so that states which differ only in unused values are the same.
 *
 * Mutants, each of which must be caught: MUTANT_REFILL MUTANT_LEAK MUTANT_COUNTDOWN MUTANT_EARLY MUTANT_ORDER.
 */
#define SLOTS 2
#define LANES 2
#define WORKERS 2
#define SLICES 2
#define RING 2 /* entries of a grant or ack ring; at least the largest MAX_LEASES */
#ifndef BATCHES
#define BATCHES 3
#endif
#define MAX_LEASES(lane) (1 + (lane)) /* lane 1 releases its two in any order */

#define FREE 0
#define FILLING 1
#define READY 2

/* --- control: written by the server alone */
byte state[SLOTS];
byte generation[SLOTS];
byte batch_of[SLOTS];
byte payload[SLOTS * SLICES]; /* the generation that wrote this slice */
byte grant_slot[LANES * RING], grant_generation[LANES * RING], grant_batch[LANES * RING];
byte granted[LANES];

/* --- lease segments: written by each client */
byte ack_slot[LANES * RING], ack_generation[LANES * RING];
byte acked[LANES];

/* --- the server's private ledger */
byte unclaimed[SLOTS], countdown[SLOTS];
bool pending[SLOTS * LANES], leased[SLOTS * LANES];
bool attached[LANES];
bool all_done;

/* --- ground truth for the assertions */
bool held[SLOTS * LANES];
bool crash[LANES]; /* stop before the next step */
bool dead[LANES];  /* as the pidfd reports */
bool done[LANES];

#define AT(slot, lane) ((slot) * LANES + (lane))
#define ENTRY(lane, count) ((lane) * RING + (count) % RING)

inline free_if_unused(s) {
#ifdef MUTANT_REFILL
  if
  :: state[s] == READY && !pending[AT(s, 0)] && !pending[AT(s, 1)] -> state[s] = FREE
  :: else
  fi
#else
  if
  :: state[s] == READY && !pending[AT(s, 0)] && !pending[AT(s, 1)] && !leased[AT(s, 0)] && !leased[AT(s, 1)] ->
     state[s] = FREE
  :: else
  fi
#endif
}

proctype Worker() {
  byte s, slice, left;
  do
  :: all_done -> break
  :: atomic { /* claim a slice */
       unclaimed[0] > 0 -> s = 0; unclaimed[0]--; slice = unclaimed[0]
     };
     goto work
  :: atomic {
       unclaimed[1] > 0 -> s = 1; unclaimed[1]--; slice = unclaimed[1]
     };
  work:
#ifdef MUTANT_EARLY
     atomic { /* counts down before it has written */
       countdown[s]--;
       if
       :: countdown[s] == 0 -> state[s] = READY
       :: else
       fi
     };
     payload[s * SLICES + slice] = generation[s]
#else
     payload[s * SLICES + slice] = generation[s];
#ifdef MUTANT_COUNTDOWN
     left = countdown[s];
     countdown[s] = left - 1;
     left = countdown[s];
#else
     d_step { countdown[s]--; left = countdown[s] };
#endif
     if
     :: d_step { left == 0 ->
        assert(state[s] == FILLING);
        state[s] = READY; /* SYNC publish-slot */
        s = 0; slice = 0; left = 0 }
     :: d_step { else -> s = 0; slice = 0; left = 0 }
     fi
#endif
  od
}

proctype Publisher() {
  byte s, l, next_batch;
  byte lane_next[LANES], leases[LANES], taken[LANES];
  do
  :: atomic { /* loan the free slot with the lowest number */
       next_batch < BATCHES && (state[0] == FREE || state[1] == FREE) ->
       if
       :: state[0] == FREE -> s = 0
       :: else -> s = 1
       fi;
       assert(!held[AT(s, 0)] && !held[AT(s, 1)]); /* HELD-BY-NOBODY */
       generation[s]++;
       state[s] = FILLING;
       batch_of[s] = next_batch;
       next_batch++;
       pending[AT(s, 0)] = attached[0];
       pending[AT(s, 1)] = attached[1];
       countdown[s] = SLICES;
       unclaimed[s] = SLICES;
       s = 0
     }
  :: atomic { /* grant */
       if
#ifdef MUTANT_ORDER
#define IS_NEXT(slot, lane) true
#else
#define IS_NEXT(slot, lane) (batch_of[slot] == lane_next[lane])
#endif
#define GRANTABLE(slot, lane) \
  (state[slot] == READY && pending[AT(slot, lane)] && IS_NEXT(slot, lane) && leases[lane] < MAX_LEASES(lane))
       :: GRANTABLE(0, 0) -> s = 0; l = 0
       :: GRANTABLE(1, 0) -> s = 1; l = 0
       :: GRANTABLE(0, 1) -> s = 0; l = 1
       :: GRANTABLE(1, 1) -> s = 1; l = 1
       fi;
       pending[AT(s, l)] = false;
       leased[AT(s, l)] = true;
       leases[l]++;
       lane_next[l]++;
       grant_slot[ENTRY(l, granted[l])] = s;
       grant_generation[ENTRY(l, granted[l])] = generation[s];
       grant_batch[ENTRY(l, granted[l])] = batch_of[s]
     };
     d_step { /* SYNC grant */
       granted[l]++;
#ifdef MUTANT_REFILL
       free_if_unused(s);
#endif
       s = 0;
       l = 0
     }
  :: atomic { /* read an ack: SYNC ack */
       if
       :: attached[0] && acked[0] != taken[0] -> l = 0
       :: attached[1] && acked[1] != taken[1] -> l = 1
       fi;
       s = ack_slot[ENTRY(l, taken[l])];
#ifndef MUTANT_REFILL
       assert(leased[AT(s, l)] && ack_generation[ENTRY(l, taken[l])] == generation[s]);
#endif
       taken[l]++;
       leased[AT(s, l)] = false;
       leases[l]--;
       free_if_unused(s);
       s = 0;
       l = 0
     }
  :: atomic { /* detach a dead client: leases freed, pending cancelled */
       if
       :: attached[0] && dead[0] -> l = 0
       :: attached[1] && dead[1] -> l = 1
       fi;
       attached[l] = false;
       for (s : 0 .. SLOTS - 1) {
         pending[AT(s, l)] = false;
#ifndef MUTANT_LEAK
         leased[AT(s, l)] = false;
#endif
         free_if_unused(s)
       }
       s = 0;
       l = 0
     }
  :: atomic {
       next_batch == BATCHES && state[0] == FREE && state[1] == FREE && (done[0] || !attached[0]) &&
       (done[1] || !attached[1]) ->
       assert(!leased[AT(0, 0)] && !leased[AT(0, 1)] && !leased[AT(1, 0)] && !leased[AT(1, 1)]);
       all_done = true;
       break
     }
  od
}

inline check_payload(s, g) {
  assert(state[s] == READY && generation[s] == g);
  assert(payload[s * SLICES] == g && payload[s * SLICES + 1] == g)
}

proctype Consumer(byte me) {
  byte seen, s, i, holds;
  byte mine[2], mine_generation[2];
  {
    do
    :: holds < MAX_LEASES(me) && granted[me] != seen -> /* SYNC grant */
       d_step {
         s = grant_slot[ENTRY(me, seen)];
         assert(grant_batch[ENTRY(me, seen)] == seen); /* IN-ORDER */
         mine[holds] = s;
         mine_generation[holds] = grant_generation[ENTRY(me, seen)];
         held[AT(s, me)] = true;
         seen++;
         holds++
       };
       d_step { check_payload(s, mine_generation[holds - 1]); s = 0 }
    :: holds > 0 ->
       if /* any of those held */
       :: i = 0
       :: holds == 2 -> i = 1
       fi;
       s = mine[i];
       d_step {
         check_payload(s, mine_generation[i]);
         held[AT(s, me)] = false;
         ack_slot[ENTRY(me, acked[me])] = s;
         ack_generation[ENTRY(me, acked[me])] = mine_generation[i];
         holds--;
         mine[i] = mine[holds];
         mine_generation[i] = mine_generation[holds];
         mine[holds] = 0;
         mine_generation[holds] = 0;
         s = 0;
         i = 0
       };
       acked[me]++ /* SYNC ack */
    :: holds == 0 && seen == BATCHES -> break
    od
  } unless { crash[me] };
  atomic {
    if
    :: crash[me] -> /* its leases are not read any more */
       held[AT(0, me)] = false;
       held[AT(1, me)] = false;
       dead[me] = true
    :: else -> done[me] = true
    fi
  }
}

proctype Killer() {
  if
  :: !done[0] -> crash[0] = true
  :: !done[1] -> crash[1] = true
  :: true
  fi
}

init {
  atomic {
    attached[0] = true;
    attached[1] = true;
    run Publisher();
    run Worker();
    run Worker();
    run Consumer(0);
    run Consumer(1);
    run Killer()
  }
}
