//! Those of one process who want the same lock.
//!
//! ```text
//!   name ─▶ front: holds the lock, or asks the nodes for it
//!             └─▶ seat ─▶ seat ─▶ seat      follow in order, and ask nobody
//! ```
//!
//! What the front has goes to the next seat, as `drive/claim/handover.rs` says.

use std::collections::VecDeque;
use std::collections::hash_map::{Entry as FrontEntry, HashMap};
use std::hash::Hash;
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll};

use crate::core::Core;
use crate::drive::{Claim, LocalTurn};
use crate::lock_options::LockOptions;
use crate::locked::locked;
use crate::name::Name;
use crate::waitable::Waitable;

/// So many parts with a mutex each, so that threads seldom meet.
const PARTS: usize = 16;

/// The lines of one locker, one for each name that somebody holds or wants.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    parts: [Mutex<Part>; PARTS],
}

#[derive(Debug, Default)]
struct Part {
    /// What the front of each line holds; nothing while it asks.
    fronts: HashMap<Name, Weak<Claim>>,
    /// Who sits behind it. Most lines have none, and there are many.
    seats: HashMap<Name, VecDeque<Arc<Seat>>>,
}

/// A place behind others.
#[derive(Debug)]
pub(crate) struct Seat {
    options: LockOptions,
    state: Waitable<SeatState>,
}

#[derive(Debug)]
enum SeatState {
    Waiting,
    Called(LocalTurn),
    Gone,
}

/// Those behind a claim that is put in front.
#[derive(Debug)]
pub(crate) struct Behind {
    /// Whether there were any.
    pub(crate) any: bool,
    /// Those of the same owner, who have left their seats.
    pub(crate) same_owner: Vec<Arc<Seat>>,
}

/// Where a newcomer stands.
#[derive(Debug)]
pub(crate) enum Entry {
    /// In front: ask the nodes.
    Front,
    /// Its owner holds the lock already.
    Reentered(Arc<Claim>),
    /// Behind others.
    Seated(Arc<Seat>),
    /// Nowhere, since it does not want to wait.
    Busy,
}

impl Core {
    /// Joins the line for a name.
    pub(crate) fn enter(self: &Arc<Self>, name: &Name, options: &LockOptions, wait: bool) -> Entry {
        let (holder, entry) = {
            let mut part = locked(self.lines.part(name));
            let holder = match part.fronts.entry(name.clone()) {
                FrontEntry::Occupied(holder) => holder.get().upgrade(),
                FrontEntry::Vacant(front) => {
                    front.insert(Weak::new());
                    return Entry::Front;
                }
            };
            let holder = holder.filter(|claim| claim.is_in_line());
            if let Some(claim) = &holder
                && options.owner.is_some()
                && claim.token.owner() == options.owner
                && claim.add_guard()
            {
                return Entry::Reentered(Arc::clone(claim));
            }
            let entry = if wait {
                let seat =
                    Arc::new(Seat { options: *options, state: Waitable::new(SeatState::Waiting) });
                part.seats.entry(name.clone()).or_default().push_back(Arc::clone(&seat));
                Entry::Seated(seat)
            } else {
                Entry::Busy
            };
            (holder, entry)
        };
        // A holder that does not know yet that it has lost the lock keeps nobody waiting.
        if let Some(claim) = holder
            && claim.is_lost()
        {
            claim.unblock_line();
            if matches!(entry, Entry::Busy) {
                return self.enter(name, options, wait);
            }
        }
        entry
    }

    /// Whether somebody of this process holds the lock at this moment.
    pub(crate) fn is_held_here(&self, name: &Name) -> bool {
        let holder = locked(self.lines.part(name)).fronts.get(name).and_then(Weak::upgrade);
        holder.is_some_and(|claim| claim.is_in_line() && !claim.is_lost())
    }

    /// Gets up from a seat before its turn, or with it.
    pub(crate) fn get_up(self: &Arc<Self>, name: &Name, seat: &Arc<Seat>) {
        if let Some(seats) = locked(self.lines.part(name)).seats.get_mut(name) {
            seats.retain(|other| !Arc::ptr_eq(other, seat));
        }
        let state = std::mem::replace(&mut *seat.state.lock(), SeatState::Gone);
        match state {
            SeatState::Called(LocalTurn::Held(claim)) => drop(claim.drop_guard()),
            SeatState::Called(turn @ LocalTurn::Front(_)) => drop(self.pass_on(name, turn)),
            SeatState::Waiting | SeatState::Gone => {}
        }
    }
}

impl Lines {
    /// How many stand or sit in lines.
    pub(crate) fn len(&self) -> usize {
        let seats = |part: &Part| part.seats.values().map(VecDeque::len).sum::<usize>();
        let parts = self.parts.iter().map(|part| locked(part));
        parts.map(|part| part.fronts.len() + seats(&part)).sum()
    }

    /// Names differ most at their end. That many of them may fall into one part does no harm: its map
    /// has a hash that nobody can guess, and this is only about threads that meet.
    fn part(&self, name: &Name) -> &Mutex<Part> {
        let last = name.as_bytes().iter().rev().take(8);
        let mixed = last.fold(0, |mixed: usize, byte| mixed * 3 + usize::from(*byte));
        &self.parts[mixed % PARTS]
    }

    /// Puts a claim in front of its line, and takes those of its owner out of their seats.
    pub(crate) fn put_in_front(&self, claim: &Arc<Claim>) -> Behind {
        let owner = claim.token.owner();
        let mut part = locked(self.part(&claim.name));
        // It stands there since it asked for the lock.
        if let Some(front) = part.fronts.get_mut(&claim.name) {
            *front = Arc::downgrade(claim);
        }
        let mut seats = part.seats.get_mut(&claim.name);
        let count = seats.as_ref().map_or(0, |seats| seats.len());
        claim.begin(count);
        let mut same_owner = Vec::new();
        if owner.is_some()
            && let Some(seats) = &mut seats
        {
            seats.retain(|seat| {
                let same = seat.options.owner == owner;
                if same {
                    same_owner.push(Arc::clone(seat));
                }
                !same
            });
        }
        Behind { any: count > 0, same_owner }
    }

    /// The next seat in line. Without one the line ends.
    pub(crate) fn next(&self, name: &Name) -> Option<Arc<Seat>> {
        let mut part = locked(self.part(name));
        let seat = part.seats.get_mut(name).and_then(VecDeque::pop_front);
        if seat.is_none() {
            part.fronts.remove(name);
            shrink(&mut part.fronts);
            if !part.seats.is_empty() && part.seats.remove(name).is_some() {
                shrink(&mut part.seats);
            }
        }
        seat
    }
}

/// Does not keep the room of a crowd that has gone.
fn shrink<K: Hash + Eq, V>(map: &mut HashMap<K, V>) {
    if map.capacity() > 64 && map.len() < map.capacity() / 8 {
        map.shrink_to_fit();
    }
}

impl Seat {
    /// Ready when it is this seat's turn. Not to be asked again after that.
    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<LocalTurn> {
        self.state.poll(cx, |state| match std::mem::replace(state, SeatState::Gone) {
            SeatState::Called(turn) => Some(turn),
            before => {
                *state = before;
                None
            }
        })
    }

    pub(crate) fn options(&self) -> &LockOptions {
        &self.options
    }

    /// Gives something to the one who sits here; returns it if nobody does.
    pub(crate) fn give(&self, turn: LocalTurn) -> Result<(), LocalTurn> {
        let mut state = self.state.lock();
        let SeatState::Waiting = *state else { return Err(turn) };
        *state = SeatState::Called(turn);
        state.unlock_and_wake();
        Ok(())
    }
}
