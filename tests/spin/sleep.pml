/* The two sleep handshakes, without their 100 ms bounds: a lost wake is a deadlock here (an invalid end state).
 *
 *   SYNC client-sleeps  client: waiting = 1, re-read granted, sleep on the futex    server: granted, then read waiting
 *   SYNC server-sleeps  server: idle = 1, re-read acked, sleep on the eventfd       client: acked, then read idle
 *
 * Spin interleaves sequentially consistent steps, as seq_cst on these accesses guarantees. A store that is still in a store
 * buffer while the following load runs is the same as the two in reverse order, and that is what the mutants do:
 * MUTANT_GRANT (server reads waiting first), MUTANT_IDLE (server reads acked first), MUTANT_ACK (client reads idle
 * first).
 */
#ifndef ROUNDS
#define ROUNDS 4
#endif
#define CREDITS 2 /* leases that the client may hold */
#define CLIENTS 2

byte granted[CLIENTS], acked[CLIENTS]; /* counters */
bool waiting[CLIENTS], sleeping[CLIENTS];
bool idle;
byte doorbell;

proctype Client(byte me) {
  byte seen;
  bool rings;
  do
  :: seen == ROUNDS -> break
  :: seen < ROUNDS ->
     if
     :: granted[me] != seen ->
        seen++;
#ifdef MUTANT_ACK
        rings = idle;
        acked[me]++;
#else
        acked[me]++;
        rings = idle;
#endif
        if
        :: rings -> doorbell = 1
        :: else
        fi
     :: else ->
        waiting[me] = true;
        if
        :: granted[me] == seen ->
           sleeping[me] = (granted[me] == seen); /* futex: compares and sleeps in one step */
           !sleeping[me]
        :: else
        fi;
        waiting[me] = false
     fi
  od
}

proctype Server() {
  byte taken[CLIENTS], l;
  bool wakes;
  do
  :: taken[0] == ROUNDS && taken[1] == ROUNDS -> break
  :: else ->
     if
#define GRANTABLE(lane) (granted[lane] < ROUNDS && granted[lane] - taken[lane] < CREDITS)
     :: acked[0] != taken[0] -> taken[0]++
     :: acked[1] != taken[1] -> taken[1]++
     :: atomic {
          if
          :: GRANTABLE(0) -> l = 0
          :: GRANTABLE(1) -> l = 1
          fi
        };
#ifdef MUTANT_GRANT
        wakes = waiting[l];
        granted[l]++;
#else
        granted[l]++;
        wakes = waiting[l];
#endif
        if
        :: wakes -> sleeping[l] = false
        :: else
        fi
     :: else ->
#ifdef MUTANT_IDLE
        if
        :: acked[0] == taken[0] && acked[1] == taken[1] ->
           idle = true;
           doorbell == 1;
           doorbell = 0
        :: else
        fi;
#else
        idle = true;
        if
        :: acked[0] == taken[0] && acked[1] == taken[1] ->
           doorbell == 1;
           doorbell = 0
        :: else
        fi;
#endif
        idle = false
     fi
  od
}

init {
  atomic {
    run Server();
    run Client(0);
    run Client(1)
  }
}
