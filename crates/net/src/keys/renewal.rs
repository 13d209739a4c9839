//! Threads that renew what is in files, beside the data path: one for each file, which ends when
//! nobody has it any more.
//!
//! | event | then |
//! |---|---|
//! | something is to be renewed | by a thread that has waited for that, else by a new one |
//! | nobody has it any more | its thread waits for another, if few do |
//! | this process is a child, by fork | what waits in its parent is not here: by new threads |
//!
//! Invariant: whoever starts one waits for no lock, which a child may have been given locked.

use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A thread that renews what is in a file: it ends when this is dropped.
#[derive(Debug)]
pub(super) struct Renewal {
    /// Asks for that at once; its end ends the thread.
    asks: Sender<()>,
}

/// Something of a file, as the thread that renews it knows it.
pub(super) trait Renews {
    /// Renews it if the file has changed, or the time has come.
    fn look(&mut self);

    /// Renews it at once; true if that could be done.
    fn renew(&mut self) -> bool;

    /// Delay until it should be looked at again.
    fn wait(&self) -> Duration;
}

/// Work of a thread until it waits for more.
type Task = Box<dyn FnOnce() + Send>;

/// A thread without a task.
struct Idle {
    /// The process in which it is.
    process: u32,
    /// Gives it one.
    tasks: Sender<Task>,
}

impl Renewal {
    /// A thread that renews this from now on.
    pub(super) fn start(state: Arc<Mutex<impl Renews + Send + 'static>>) -> io::Result<Arc<Self>> {
        let (asks, asked) = mpsc::channel();
        run(Box::new(move || watch(&state, &asked)))?;
        Ok(Arc::new(Self { asks }))
    }

    /// Has the thread renew it at once.
    pub(super) fn ask(&self) {
        // The thread lives as long as this.
        let _ = self.asks.send(());
    }
}

/// Nothing is to be renewed of what is yet to come.
impl<R: Renews> Renews for Option<R> {
    fn look(&mut self) {
        self.iter_mut().for_each(R::look);
    }

    fn renew(&mut self) -> bool {
        self.as_mut().is_some_and(R::renew)
    }

    fn wait(&self) -> Duration {
        self.as_ref().map_or(FIRST_WAIT, R::wait)
    }
}

pub(super) fn lock<T>(state: &Mutex<T>) -> MutexGuard<'_, T> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn watch(state: &Mutex<impl Renews>, asked: &Receiver<()>) {
    loop {
        let wait = lock(state).wait();
        match asked.recv_timeout(wait) {
            Ok(()) => {
                lock(state).renew();
                // Whatever else has asked meanwhile is answered by that.
                while asked.try_recv().is_ok() {}
            }
            Err(RecvTimeoutError::Timeout) => lock(state).look(),
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// Has a thread do this.
fn run(mut task: Task) -> io::Result<()> {
    while let Some(idle) = next_idle() {
        match idle.tasks.send(task) {
            Ok(()) => return Ok(()),
            // It has ended after all.
            Err(mpsc::SendError(back)) => task = back,
        }
    }
    let thread = std::thread::Builder::new().name("tailcut-keys".to_owned());
    thread.spawn(move || work(task)).map(drop)
}

/// A thread of this process that waits.
fn next_idle() -> Option<Idle> {
    let mut idle = IDLE.try_lock().ok()?;
    let process = std::process::id();
    while let Some(next) = idle.pop() {
        if next.process == process {
            return Some(next);
        }
        // To drop it might be to wait for a lock that its thread had as this process was forked.
        std::mem::forget(next);
    }
    None
}

fn work(mut task: Task) {
    loop {
        task();
        let (tasks, given) = mpsc::channel();
        let own = Idle { process: std::process::id(), tasks };
        match IDLE.try_lock() {
            Ok(mut idle) if idle.len() < IDLE_MAX => idle.push(own),
            _ => return,
        }
        match given.recv() {
            Ok(next) => task = next,
            Err(_) => return,
        }
    }
}

/// Threads that wait for something to renew.
static IDLE: Mutex<Vec<Idle>> = Mutex::new(Vec::new());

/// Most of them.
const IDLE_MAX: usize = 2;

/// Interval between looks at what has not come yet: an agent may want to be asked as soon again.
const FIRST_WAIT: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use std::thread::ThreadId;

    use super::*;

    /// Tells which thread renews it.
    struct Reporter(Sender<ThreadId>);

    impl Renews for Reporter {
        fn look(&mut self) {}

        fn renew(&mut self) -> bool {
            self.0.send(std::thread::current().id()).is_ok()
        }

        fn wait(&self) -> Duration {
            Duration::from_secs(60)
        }
    }

    fn thread_of_one() -> ThreadId {
        let (tells, told) = mpsc::channel();
        let renewal = Renewal::start(Arc::new(Mutex::new(Reporter(tells)))).expect("a thread");
        renewal.ask();
        told.recv().expect("it renews")
    }

    #[test]
    fn one_thread_after_the_other_does_not_make_as_many() {
        let mut threads = Vec::new();
        for _ in 0..1_000 {
            let thread = thread_of_one();
            if !threads.contains(&thread) {
                threads.push(thread);
            }
        }
        // Others begin some too, and who asks may be quicker than a thread that has just ended its
        // last.
        assert!(threads.len() < 900, "{}", threads.len());
    }

    #[test]
    fn what_waits_in_another_process_is_left_alone() {
        let (tasks, given) = mpsc::channel();
        IDLE.lock().expect("nobody panics").push(Idle { process: 0, tasks });
        thread_of_one();
        assert!(given.try_recv().is_err(), "nothing was asked of it");
    }
}
