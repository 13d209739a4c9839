//! A server whose thread runs short requests itself, and a deputy that takes over from it where one
//! of them turns out to be long.
//!
//! What serves, the socket and the queue, is in one box, the [`Lead`]. Whichever of two threads has
//! the box leads. It puts the box on a table while it runs a request, and the other, its deputy,
//! looks there.
//!
//! | the leader | event | then |
//! |---|---|---|
//! | has received requests | some are to run in place ([`InPlace`](tailcut_net::dispatch::InPlace)) | puts the box down, runs one, takes the box again, answers; and so on |
//! | runs a request | the deputy has seen the same box lie there for 1 ms | the deputy takes it and leads, and the workers get what else was to run in place |
//! | has run a request | the box is there | goes on |
//! | has run a request | the box is gone | gives its answer to the new leader as any other thread does, and is the deputy |
//!
//! While a thread that was relieved is at its request nobody is the deputy, and nothing runs in
//! place.
//!
//! Why this is sound: the box is owned, and moves. No thread can touch what serves without having
//! it, which the compiler checks; there is one box, so that one thread leads; and a request belongs
//! to whoever took it out of the queue in the box, so that it runs once. The table's lock is held
//! for a few instructions, by two threads alone, and never while a handler runs or a thread waits
//! for the network. When the leader ends, however it does, the deputy does too ([`Ending`]); with
//! the box, the dispatcher ends and its workers. A deputy ends before its leader only by a panic,
//! of which the code between its looks has none.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::Scope;
use std::time::Duration;

use tailcut_net::affinity::Usage;
use tailcut_net::clock::Clock;
use tailcut_net::dispatch::{Dispatcher, LONG_NS};
use tailcut_proto::node::Time;
use tailcut_proto::scheduler::typed::TypeId;

use crate::crew::Crew;
use crate::error::Error;
use crate::lock;
use crate::request::{Outbox, Task};
use crate::server::{AfterTurn, Server};

/// State that the two threads share.
pub(crate) struct Leadership<'a, R> {
    /// Runs a request.
    run: &'a R,
    /// Outbox for the answer of a leader that was relieved.
    answers: Arc<Outbox>,
    /// Table on which the leader puts the box.
    table: Mutex<Table<'a>>,
    /// Rung for a deputy that sleeps.
    bell: Condvar,
}

/// The serving side: whoever has it leads.
struct Lead<'a> {
    server: &'a mut Server,
    crew: Dispatcher<Task>,
    /// There is a deputy, so that requests may run in place.
    has_deputy: bool,
    /// CPU usage of the leader, [`SPENT_NS_MAX`] old at most where it is used; `None` where it has
    /// slept since.
    spent: Option<Spent>,
}

/// State that the two threads can see of each other.
struct Table<'a> {
    /// Here while the leader runs a request.
    lead: Option<Box<Lead<'a>>>,
    /// Times that the leader has put it here.
    puts: u64,
    /// State of the thread that does not lead.
    deputy: Deputy,
    /// The type of the request that the deputy was relieved of, where it was long.
    long: Option<TypeId>,
    /// Nobody leads any more.
    has_ended: bool,
}

/// State of the thread that does not lead.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Deputy {
    /// A request that it was relieved of; or it has not begun.
    Away,
    /// Looks at the table every [`STUCK_NS`].
    Watches,
    /// Sleeps until the bell rings.
    Sleeps,
}

/// Reason why a thread ceases to lead.
enum Led {
    /// The server has been stopped.
    ToTheEnd,
    /// Its deputy leads now. The type of the request that it was at, where that was long of its own
    /// and not because others had the core.
    UntilRelieved(Option<TypeId>),
}

/// CPU usage of a thread at a time.
#[derive(Clone, Copy)]
struct Spent {
    usage: Usage,
    at: Time,
}

impl<'a, R: Fn(&mut Task) + Sync> Leadership<'a, R> {
    /// For a server whose requests are run by `run`.
    pub(crate) fn new(run: &'a R, answers: Arc<Outbox>) -> Self {
        let deputy = Deputy::Away;
        let table = Table { lead: None, puts: 0, deputy, long: None, has_ended: false };
        Self { run, answers, table: Mutex::new(table), bell: Condvar::new() }
    }

    /// Serves until the server is stopped, with a deputy in a thread of `scope`.
    pub(crate) fn serve<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        server: &'a mut Server,
        crew: Dispatcher<Task>,
    ) -> Result<(), Error> {
        let lead = Box::new(Lead { server, crew, has_deputy: false, spent: None });
        let deputy = std::thread::Builder::new().name("tailcut-deputy".to_owned());
        let deputy = deputy.spawn_scoped(scope, || self.take_part(None))?;
        let result = self.take_part(Some(lead));
        let other = deputy.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        result.and(other)
    }

    /// Leads, where there is a box to lead with, and is the deputy, by turns.
    fn take_part(&self, lead: Option<Box<Lead<'a>>>) -> Result<(), Error> {
        let _ending = Ending(self);
        let mut lead = lead.or_else(|| self.stand_by(None));
        while let Some(mine) = lead {
            lead = match self.lead(mine)? {
                Led::ToTheEnd => None,
                Led::UntilRelieved(long) => self.stand_by(long),
            };
        }
        Ok(())
    }

    /// Serves the network until the server ends, or until it is relieved.
    fn lead(&self, mut lead: Box<Lead<'a>>) -> Result<Led, Error> {
        loop {
            if !lead.has_deputy {
                self.look_for_deputy(&mut lead);
            }
            lead.crew.set_in_place(lead.has_deputy);
            let turn = lead.server.crew_turn(&mut lead.crew)?;
            if lead.crew.has_in_place() {
                lead = match self.run_in_place(lead, turn.now) {
                    Ok(lead) => lead,
                    Err(long) => return Ok(Led::UntilRelieved(long)),
                };
            }
            let Lead { server, crew, spent, .. } = &mut *lead;
            match server.crew_wait(turn, crew)? {
                AfterTurn::GoOn => {}
                AfterTurn::Slept => *spent = None,
                AfterTurn::End => {
                    server.end_crew(crew);
                    return Ok(Led::ToTheEnd);
                }
            }
        }
    }

    /// Runs what is to run in place, and sends the answers. Where it is relieved meanwhile, the
    /// type of the request if that was long.
    fn run_in_place(
        &self,
        mut lead: Box<Lead<'a>>,
        mut now: Time,
    ) -> Result<Box<Lead<'a>>, Option<TypeId>> {
        let go_at = Clock.now();
        let spent = lead.spent_by(go_at);
        while let Some((mut task, wait)) = lead.crew.next_in_place() {
            if task.as_ref().is_some_and(|job| job.is_wanted(now)) {
                let began_at = lead.crew.times_next_in_place(wait.kind()).then(|| Clock.now());
                self.put_down(lead);
                (self.run)(&mut task);
                let timed = began_at.map(|began_at| (began_at, Clock.now()));
                let Some(back) = lock(&self.table).lead.take() else {
                    task.into_iter().for_each(|job| self.answers.push(job));
                    // By then it had begun.
                    let was_long = spent.was_long_since(go_at + GO_NS_MAX);
                    return Err(was_long.then_some(wait.kind()));
                };
                lead = back;
                lead.note_run(wait.kind(), timed, spent);
                now = timed.map_or(now, |(_, ended_at)| ended_at);
                if now >= go_at + GO_NS_MAX {
                    lead.hand_over(now);
                }
            }
            task.into_iter().for_each(|job| lead.server.settle_run(now, job));
        }
        lead.server.flush_run(now);
        Ok(lead)
    }

    /// Puts the box where the deputy can take it.
    #[inline]
    fn put_down(&self, lead: Box<Lead<'a>>) {
        let mut table = lock(&self.table);
        table.lead = Some(lead);
        table.puts += 1;
        if table.deputy == Deputy::Sleeps {
            table.deputy = Deputy::Watches;
            self.bell.notify_one();
        }
    }

    /// Looks whether the other thread has become the deputy, and what it has to say.
    #[cold]
    fn look_for_deputy(&self, lead: &mut Lead<'a>) {
        let mut table = lock(&self.table);
        lead.has_deputy = table.deputy != Deputy::Away;
        table.long.take().into_iter().for_each(|kind| lead.crew.note_long(kind));
    }

    /// Watches the leader; has the box when it is time to lead, and none where the server has
    /// ended. `long` is the type of a long request that this thread was relieved of.
    fn stand_by(&self, long: Option<TypeId>) -> Option<Box<Lead<'a>>> {
        let mut table = lock(&self.table);
        (table.deputy, table.long) = (Deputy::Watches, long);
        let mut seen = (table.puts, Clock.now());
        while !table.has_ended {
            table = if table.deputy == Deputy::Sleeps {
                self.bell.wait(table).unwrap_or_else(PoisonError::into_inner)
            } else {
                let look_in = Duration::from_nanos(STUCK_NS);
                self.bell.wait_timeout(table, look_in).unwrap_or_else(PoisonError::into_inner).0
            };
            let now = Clock.now();
            if table.puts != seen.0 {
                seen = (table.puts, now);
            }
            let unchanged_ns = now.saturating_sub(seen.1);
            if unchanged_ns >= STUCK_NS
                && let Some(mut lead) = table.lead.take()
            {
                table.deputy = Deputy::Away;
                drop(table);
                (lead.has_deputy, lead.spent) = (false, None);
                lead.crew.note_taken_over();
                lead.hand_over(now);
                return Some(lead);
            }
            if unchanged_ns >= QUIET_NS {
                table.deputy = Deputy::Sleeps;
            }
        }
        None
    }
}

impl Lead<'_> {
    /// CPU usage of the leader, not long ago. To ask costs as much as half a request.
    fn spent_by(&mut self, now: Time) -> Spent {
        let known = self.spent.filter(|spent| now < spent.at.saturating_add(SPENT_NS_MAX));
        *self
            .spent
            .insert(known.unwrap_or_else(|| Spent { usage: Usage::of_this_thread(), at: now }))
    }

    /// A request has run in place, from and until these times where it was timed.
    #[inline]
    fn note_run(&mut self, kind: TypeId, timed: Option<(Time, Time)>, spent: Spent) {
        let own = timed.and_then(|(began_at, ended_at)| {
            let service_ns = ended_at.saturating_sub(began_at);
            // Others may have had the core for most of it.
            (service_ns <= LONG_NS || spent.was_long_since(began_at)).then_some(service_ns)
        });
        self.crew.note_in_place(kind, own);
    }

    /// Gives the workers what was to run in place.
    #[cold]
    fn hand_over(&mut self, now: Time) {
        self.crew.set_in_place(false);
        while let Some((task, wait)) = self.crew.next_in_place() {
            let Some(job) = task else { continue };
            let id = job.id;
            match Crew::offer(&mut self.crew, job, wait) {
                Ok(Some(ticket)) => self.server.note_ticket(id, ticket),
                Ok(None) => {}
                Err(job) => self.server.refuse_run(now, job),
            }
        }
        self.crew.flush();
    }
}

impl Drop for Lead<'_> {
    /// The server has ended, or it failed, or a thread panicked: who still runs shall not go on for
    /// ever.
    fn drop(&mut self) {
        self.server.abandon_crew();
    }
}

impl Spent {
    /// True if the thread has computed for long, or waited for something, since `began_at`.
    #[cold]
    fn was_long_since(self, began_at: Time) -> bool {
        let others_ns = began_at.saturating_sub(self.at);
        Usage::of_this_thread().is_long_since(self.usage, others_ns + LONG_NS)
    }
}

/// Has the other thread end when this one returns or panics.
struct Ending<'a, 'b, R: Fn(&mut Task) + Sync>(&'b Leadership<'a, R>);

impl<R: Fn(&mut Task) + Sync> Drop for Ending<'_, '_, R> {
    fn drop(&mut self) {
        let mut table = lock(&self.0.table);
        table.has_ended = true;
        self.0.bell.notify_one();
        // There only where something of ours panicked, and not a handler.
        let lead = table.lead.take();
        drop(table);
        drop(lead);
    }
}

/// Longest time that the box may lie on the table once the deputy has seen it there, which looks as
/// often.
const STUCK_NS: u64 = 1_000_000;

/// Without any request in place for so long the deputy sleeps until there is one.
const QUIET_NS: u64 = 20_000_000;

/// For how long requests run in place before the network is looked at again, as seen at those that
/// are timed: the rest is the workers'.
const GO_NS_MAX: u64 = 100_000;

/// Greatest age of a leader's CPU usage.
const SPENT_NS_MAX: u64 = 1_000_000;
