//! Readiness of many sockets on one thread, and what the thread does while there is none.
//!
//! | a thread | looks | when nothing is ready |
//! |---|---|---|
//! | that polls | again and again, some [`SPINS`] times a call | returns to its owner |
//! | that blocks, within the spin time after the last traffic | as above | returns |
//! | that blocks, after it | once | sleeps |
//!
//! Readiness is level-triggered (epoll): what is left unread is told again at the next look, so
//! that a turn may stop wherever its work ends.
//!
//! Invariant: a sleep ends for a socket, for the deadline and for a [`Waker`], whichever is first.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::event::epoll;
use tailcut_proto::node::Time;

use crate::clock::Clock;
use crate::driver::Wait;
use crate::spin::SpinTime;
use crate::sys;
use crate::waker::{Sleeper, Waker, poll_entry};

/// Events that a descriptor is waited for; errors are always told.
pub(crate) use rustix::event::epoll::EventFlags as Interest;

/// The descriptors of one thread, each under a number of its owner's, and how it waits for them.
#[derive(Debug)]
pub(crate) struct Poller {
    /// The kernel's set.
    epoll: OwnedFd,
    /// Descriptors that the last look found.
    ready: Vec<Ready>,
    /// `ready` is of a sleep that has just ended, so that the next look need not ask again.
    is_fresh: bool,
    /// Descriptors of another's that are slept for too, as they are registered; their keys count
    /// from [`GUEST`].
    #[cfg(feature = "tcp")]
    guests: Vec<libc::pollfd>,
    /// The clock of deadlines.
    clock: Clock,
    /// Wait of the thread, as configured.
    wait: Wait,
    /// Sleeps of the thread.
    sleeper: Sleeper,
    /// Time of the last traffic: the end of a turn that had an event, or of a send.
    active: Time,
    /// Time for which it looks again after that.
    spin: SpinTime,
    /// Time up to which nothing had happened: of the last look that found nothing, or of the end of
    /// a sleep.
    quiet_until: Time,
    /// Something was sent since the last poll, which is traffic too: an answer may be near.
    has_sent: bool,
    /// Times that the thread was put to sleep.
    pub(crate) sleeps: u64,
}

/// A descriptor that something happened to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ready {
    /// The owner's number.
    pub(crate) key: u64,
    /// Events that it is ready for.
    flags: Interest,
}

impl Ready {
    /// A descriptor that is read without asking.
    #[cfg(feature = "tcp")]
    pub(crate) const DIRECT: Self = Self { key: 0, flags: Interest::IN };

    /// There is something to read, the peer has ended, or the descriptor has failed: a read tells
    /// which.
    #[inline]
    pub(crate) fn is_readable(self) -> bool {
        self.flags.intersects(Interest::IN.union(Interest::HUP))
    }

    /// There is room to write, or the descriptor has failed.
    #[inline]
    #[cfg(feature = "tcp")]
    pub(crate) fn is_writable(self) -> bool {
        self.flags.intersects(Interest::OUT.union(Interest::HUP))
    }

    /// The error queue holds something, or the descriptor has failed.
    #[inline]
    pub(crate) fn has_error(self) -> bool {
        self.flags.contains(Interest::ERR)
    }
}

impl Poller {
    /// No descriptors yet.
    pub(crate) fn new(wait: Wait) -> io::Result<Self> {
        Ok(Self {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            ready: Vec::with_capacity(READY_MAX),
            is_fresh: false,
            #[cfg(feature = "tcp")]
            guests: Vec::new(),
            clock: Clock,
            wait,
            sleeper: Sleeper::new()?,
            active: 0,
            spin: SpinTime::new(wait.spin_ns()),
            quiet_until: 0,
            has_sent: false,
            sleeps: 0,
        })
    }

    /// Adds a descriptor. Closing it removes it.
    pub(crate) fn add(&self, fd: BorrowedFd<'_>, key: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, fd, epoll::EventData::new_u64(key), interest)?)
    }

    /// Changes what a descriptor is waited for.
    #[cfg(feature = "tcp")]
    pub(crate) fn modify(
        &self,
        fd: BorrowedFd<'_>,
        key: u64,
        interest: Interest,
    ) -> io::Result<()> {
        Ok(epoll::modify(&self.epoll, fd, epoll::EventData::new_u64(key), interest)?)
    }

    /// Looks what is ready, without waiting; returns how many descriptors are.
    #[inline]
    pub(crate) fn look(&mut self) -> io::Result<usize> {
        if !std::mem::take(&mut self.is_fresh) {
            self.fetch(Some(0), &mut [])?;
        }
        Ok(self.ready.len())
    }

    /// Sleeps for as long, nanoseconds, until a descriptor is ready or one of another's, of which
    /// it says which are; returns whether own ones are, which the next look tells.
    #[cfg(feature = "tcp")]
    pub(crate) fn sleep_among(
        &mut self,
        guests: &mut [libc::pollfd],
        timeout_ns: Option<u64>,
    ) -> io::Result<bool> {
        self.admit(guests)?;
        self.fetch(timeout_ns, guests)?;
        self.quiet_until = self.now();
        self.is_fresh = !self.ready.is_empty();
        Ok(self.is_fresh)
    }

    /// Registers another's descriptors as they want to be.
    #[cfg(feature = "tcp")]
    fn admit(&mut self, guests: &[libc::pollfd]) -> io::Result<()> {
        self.guests.resize(guests.len(), poll_entry(-1));
        for (key, (guest, known)) in (GUEST..).zip(guests.iter().zip(&mut self.guests)) {
            if guest.fd >= 0 && (guest.fd, guest.events) != (known.fd, known.events) {
                sys::epoll::watch(self.epoll.as_fd(), (guest.fd, guest.events), key)?;
                *known = *guest;
            }
        }
        Ok(())
    }

    /// Asks the kernel what is ready, and waits for it for as long.
    #[inline]
    fn fetch(&mut self, timeout_ns: Option<u64>, guests: &mut [libc::pollfd]) -> io::Result<()> {
        self.ready.clear();
        guests.iter_mut().for_each(|guest| guest.revents = 0);
        let mut events = [MaybeUninit::uninit(); READY_MAX];
        for event in sys::epoll::wait(self.epoll.as_fd(), &mut events, timeout_ns)? {
            let (key, flags) = (event.u64, event.events);
            match key.checked_sub(GUEST) {
                None => self.ready.push(Ready { key, flags: Interest::from_bits_retain(flags) }),
                Some(index) => {
                    // While the thread spins, its owner asks those itself.
                    if let Some(guest) = guests.get_mut(index as usize) {
                        guest.revents = flags as i16;
                    }
                }
            }
        }
        Ok(())
    }

    /// A descriptor that the last look found.
    #[inline]
    pub(crate) fn ready(&self, index: usize) -> Ready {
        self.ready[index]
    }

    /// Something has been sent.
    #[inline]
    pub(crate) fn note_sent(&mut self) {
        self.has_sent = true;
    }

    /// The clock's time.
    #[inline]
    pub(crate) fn now(&self) -> Time {
        self.clock.now()
    }

    /// True if the next poll looks again and again before it returns, and does not sleep.
    #[inline]
    pub(crate) fn keeps_turning(&mut self) -> bool {
        if self.wait == Wait::BusyPoll {
            return true;
        }
        let now = self.now();
        if std::mem::take(&mut self.has_sent) {
            self.active = now;
        }
        self.quiet_until = now;
        self.is_near(now)
    }

    /// Lets another thread have this one's core, if it may sleep at all and one wants it.
    #[inline]
    #[cfg(feature = "tcp")]
    pub(crate) fn give_way(&mut self) {
        if self.wait != Wait::BusyPoll {
            self.spin.give_way(self.quiet_until);
        }
    }

    /// Within the spin time after the last traffic.
    #[inline]
    fn is_near(&self, now: Time) -> bool {
        self.wait == Wait::BusyPoll || now.saturating_sub(self.active) < self.spin.get(now)
    }

    /// Takes note of a turn that had an event.
    #[inline]
    fn note_events(&mut self) {
        self.spin.note_gap(self.quiet_until.saturating_sub(self.active));
        self.active = self.now();
    }

    /// The waker by which other threads end the sleep.
    pub(crate) fn waker(&self) -> Waker {
        self.sleeper.waker()
    }

    fn sleep(&mut self, until: Option<Time>) -> io::Result<()> {
        let mut fds = [self.sleeper.entry(), poll_entry(self.epoll.as_raw_fd())];
        if self.sleeper.sleep(&mut fds, until)?.is_some() {
            self.sleeps += 1;
            self.quiet_until = self.now();
        }
        Ok(())
    }
}

#[cfg(feature = "tcp")]
impl AsFd for Poller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

/// Sockets of one thread whose turns tell an `F` what has happened.
pub(crate) trait ReadySockets<F> {
    /// Poller of the thread.
    fn poller(&mut self) -> &mut Poller;

    /// Serves what is ready; returns how often it told `f`. Who spins reads few sockets without
    /// asking first whether there is anything to read.
    fn turn(&mut self, spins: bool, f: &mut F) -> io::Result<usize>;

    /// The first deadline that ends a sleep.
    fn deadline(&self) -> Option<Time> {
        None
    }

    /// Tells `f` what has happened, and returns how often. When nothing has, a thread that blocks
    /// sleeps until something does, until `until` (`None` for never), or until a [`Waker`] ends it;
    /// one that polls looks a few times, up to `until`. May return 0 for no reason.
    #[inline]
    fn poll_turns(&mut self, until: Option<Time>, f: &mut F) -> io::Result<usize> {
        let spins = self.poller().keeps_turning();
        let mut events = if spins { self.spin(until, f)? } else { self.turn(false, f)? };
        if events == 0 && !spins {
            let until = self.deadline().into_iter().chain(until).min();
            self.poller().sleep(until)?;
            events = self.turn(false, f)?;
        }
        if events > 0 && self.poller().wait != Wait::BusyPoll {
            self.poller().note_events();
        }
        Ok(events)
    }

    /// Looks until something has happened, until `until`, or for so long that the caller may want
    /// to look at other things or to sleep.
    #[inline]
    fn spin(&mut self, until: Option<Time>, f: &mut F) -> io::Result<usize> {
        for _ in 0..SPINS {
            let events = self.turn(true, f)?;
            if events > 0 {
                return Ok(events);
            }
            let poller = self.poller();
            let now = poller.now();
            poller.quiet_until = now;
            if until.is_none_or(|until| now >= until) || !poller.is_near(now) {
                break;
            }
        }
        Ok(0)
    }
}

/// As many sockets are read directly: a read that finds nothing costs 0.23 us, and asking epoll
/// about as much as two.
pub(crate) const DIRECT_MAX: usize = 2;

/// Keys of other owners' descriptors begin here; an owner's own are below.
const GUEST: u64 = 3 << 62;

/// Descriptors that one look tells of.
const READY_MAX: usize = 256;

/// Looks in a row of a thread that spins: with one socket some 20 us.
const SPINS: u32 = 64;

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    fn poller() -> Poller {
        Poller::new(Wait::BusyPoll).expect("a set")
    }

    #[test]
    fn what_is_unread_is_told_again() {
        let (mut near, far) = UnixStream::pair().expect("a pair");
        let mut poller = poller();
        poller.add(far.as_fd(), 7, Interest::IN).expect("an entry");
        assert_eq!(poller.look().expect("a call"), 0);
        near.write_all(&[1]).expect("a byte");
        for _ in 0..2 {
            assert_eq!(poller.look().expect("a call"), 1);
            let ready = poller.ready(0);
            assert_eq!(
                (ready.key, ready.is_readable(), ready.is_writable(), ready.has_error()),
                (7, true, false, false)
            );
        }
    }

    #[test]
    fn an_interest_is_changed() {
        let (_near, far) = UnixStream::pair().expect("a pair");
        let mut poller = poller();
        poller.add(far.as_fd(), 7, Interest::empty()).expect("an entry");
        assert_eq!(poller.look().expect("a call"), 0);
        poller.modify(far.as_fd(), 7, Interest::OUT).expect("an entry");
        assert_eq!(poller.look().expect("a call"), 1);
        assert!(poller.ready(0).is_writable());
    }

    /// Sockets on which something happens so long after it has last.
    struct Paced {
        poller: Poller,
        gap_ns: u64,
        next_at: Time,
        /// Looks of a thread that spins, since something happened.
        looks: u32,
    }

    impl ReadySockets<()> for Paced {
        fn poller(&mut self) -> &mut Poller {
            &mut self.poller
        }

        fn turn(&mut self, spins: bool, (): &mut ()) -> io::Result<usize> {
            let began_at = Clock.now();
            self.looks += u32::from(spins);
            while Clock.now() < began_at + LOOK_NS {}
            Ok(usize::from(began_at >= self.next_at))
        }
    }

    impl Paced {
        /// Polls until something happens; returns how often it looked for it spinning.
        fn await_event(&mut self) -> u32 {
            (self.looks, self.next_at) = (0, Clock.now() + self.gap_ns);
            while self.poll_turns(Some(self.next_at), &mut ()).expect("a call") == 0 {}
            self.looks
        }

        fn spin_ns(&self) -> u64 {
            self.poller.spin.get(Clock.now())
        }
    }

    #[test]
    fn long_gaps_end_the_spinning_and_short_ones_bring_it_back() {
        let poller = Poller::new(Wait::Block { spin_ns: SPIN_NS }).expect("a set");
        let mut paced = Paced { poller, gap_ns: 2 * SPIN_NS, next_at: 0, looks: 0 };
        paced.poller.note_sent();
        assert!(paced.await_event() > 0 && paced.spin_ns() == SPIN_NS, "it begins by spinning");
        for _ in 0..40 {
            paced.await_event();
        }
        assert!(paced.spin_ns() < SPIN_NS / 10);
        let sleeps = paced.poller.sleeps;
        let looks = paced.await_event();
        assert!(looks <= (SPIN_NS / 10 / LOOK_NS) as u32, "{looks} looks");
        assert!(paced.poller.sleeps > sleeps);
        // Where this thread is kept from running they are long, or its core is taken for wanted.
        paced.gap_ns = 0;
        let patience_ends_at = Clock.now() + 20_000_000_000;
        while paced.spin_ns() < SPIN_NS {
            paced.await_event();
            assert!(Clock.now() < patience_ends_at, "short gaps are not learned");
        }
    }

    /// The longest spin: many looks.
    const SPIN_NS: u64 = 100_000;

    /// Time of a look.
    const LOOK_NS: u64 = 500;
}
