/* The workers' pool and its doorbells (server/exec/engine.cpp): which workers are awake, the value of
 * ControlHeader::server_idle, and which worker is woken. If all sleep for ever while a batch is due, that is an invalid end
 * state. One worker may hang in a turn for ever: then the other one must still deliver every batch to the other client.
 * The bounds of sleeps (100 and 500 ms) are omitted, with one exception: a client that sleeps while a worker hangs in a turn
 * that was expected to be brief checks again.
 *
 * A turn is one batch of one client. Under the lock (an atomic step here) a worker reads the acks, picks a job, sets when
 * clients must ring, and wakes another worker. The turn itself runs outside the lock, and is brief or long as the pool
 * expects; only a long one is announced. Mutants: MUTANT_RING (a client that is about to sleep does not ring a pool that is
 * half awake), MUTANT_KICK (a worker that starts a long turn wakes no other one), MUTANT_LOOK (a worker does not check the
 * acks again before it sleeps).
 */
#define ROUNDS 3
#define CREDITS 2 /* batches granted and not acked, per client */
#define CLIENTS 2
#define WORKERS 2

mtype = { awake, rests, half };
mtype idle = awake;
byte granted[CLIENTS], acked[CLIENTS], taken[CLIENTS], making[CLIENTS];
bool sleeping[CLIENTS], excused[CLIENTS];
byte doorbell; /* rings that no sleeping worker has consumed */
byte sleepers, away;
bool may_hang = true;
bool locked; /* where the clients may act while a worker has the lock */

#define ACKS (acked[0] != taken[0] || acked[1] != taken[1])
#define ROOM(c) (granted[c] + making[c] < ROUNDS && granted[c] + making[c] - taken[c] < CREDITS)

inline announce() {
  if
  :: sleepers == 0 -> idle = awake
  :: sleepers > 0 && sleepers + away == WORKERS -> idle = rests
  :: else -> idle = half
  fi
}

inline ring() {
  if
  :: doorbell < WORKERS -> doorbell++
  :: else
  fi
}

proctype Client(byte me) {
  byte seen;
  do
  :: seen == ROUNDS || excused[me] -> break
  :: else ->
     if
     :: granted[me] != seen ->
        seen++;
        acked[me]++;
        if
        :: idle == rests -> ring()
        :: else
        fi
     :: else ->
#ifndef MUTANT_RING
        if
        :: idle == half -> ring()
        :: else
        fi;
#endif
        sleeping[me] = (granted[me] == seen); /* futex: compares and sleeps in one step */
        if
        :: !sleeping[me] || excused[me]
#ifndef MUTANT_RING
        :: idle == half && !may_hang
#endif
        fi
     fi
  od
}

proctype Worker() {
  byte c;
  bool brief, found;
end_all:
  do
  :: atomic {
       !locked;
       taken[0] = acked[0];
       taken[1] = acked[1];
       found = false;
       if
       :: ROOM(0) -> c = 0; found = true
       :: ROOM(1) -> c = 1; found = true
       :: else
       fi;
       if
       :: found ->
          making[c]++;
          if
          :: brief = true
          :: brief = false
          fi;
          if
          :: brief
          :: !brief -> away++
          fi;
          announce();
#ifndef MUTANT_KICK
          if
          :: !brief && sleepers > 0 -> ring()
          :: else
          fi
#endif
       :: else -> locked = true /* until it sleeps: one critical section */
       fi
     };
     if
     :: found ->
        if
        :: atomic {
             may_hang -> may_hang = false;
             excused[c] = true /* this client waits for the hanging batch; the other one must not */
           };
end_hung:  false
        :: true
        fi;
        atomic {
          !locked;
          if
          :: brief
          :: !brief -> away--
          fi;
          making[c]--;
          granted[c]++;
          sleeping[c] = false
        }
     :: else ->
        atomic {
          sleepers++;
          announce()
        };
        atomic {
#ifndef MUTANT_LOOK
          found = ACKS;
#endif
          locked = false
        };
        if
        :: found
        :: !found ->
end_asleep:
           atomic { doorbell > 0 -> doorbell-- }
        fi;
        atomic {
          !locked;
          sleepers--;
          announce()
        }
     fi
  od
}

init {
  atomic {
    run Worker();
    run Worker();
    run Client(0);
    run Client(1)
  }
}
