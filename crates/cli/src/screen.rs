//! The terminal as a screen that is drawn on, and given back as it was.
//!
//! It draws on standard error, so that results can go elsewhere, and reads keys from standard input
//! where that is the terminal. While it is open the terminal echoes nothing and sends no signals:
//! what was typed is read as keys, Ctrl-C among them.
//!
//! Invariant: however the process ends by itself, the terminal is as it was before: by the end of
//! the screen, by a panic, or by a second signal. [`restore`] may be called at any time, by any
//! thread.

use std::env;
use std::io::{self, BufWriter, IsTerminal as _, Stderr, Write as _, stderr, stdin};
use std::panic;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use anyhow::{Context, Result};
use ratatui::backend::TermionBackend;
use ratatui::layout::Rect;
use ratatui::{Frame, Terminal, TerminalOptions, Viewport};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{OptionalActions, OutputModes, Termios, tcgetattr, tcgetwinsize, tcsetattr};

/// The terminal, while it is a screen.
pub(crate) struct Screen {
    terminal: Drawn,
    area: Rect,
    has_keys: bool,
}

type Drawn = Terminal<TermionBackend<BufWriter<Stderr>>>;

impl Screen {
    /// True if standard error is a terminal that can be drawn on.
    pub(crate) fn is_possible() -> bool {
        stderr().is_terminal() && env::var_os("TERM").is_none_or(|term| term != "dumb")
    }

    /// Takes the terminal over.
    ///
    /// # Errors
    ///
    /// That it cannot be, and is as it was.
    pub(crate) fn open() -> Result<Self> {
        restore_on_panic();
        let area = size();
        let terminal = terminal(area).context("cannot draw on the terminal")?;
        let has_keys = stdin().is_terminal();
        let mut open = lock();
        if has_keys {
            let modes = tcgetattr(stdin()).context("cannot read the modes of the terminal")?;
            let mut raw = modes.clone();
            raw.make_raw();
            // Lines of others still begin at the left.
            raw.output_modes |= OutputModes::OPOST;
            tcsetattr(stdin(), OptionalActions::Now, &raw)
                .context("cannot set the modes of the terminal")?;
            *open = Some(Some(modes));
        } else {
            *open = Some(None);
        }
        let screen = Self { terminal, area, has_keys };
        stderr().write_all(ENTER).context("cannot draw on the terminal")?;
        Ok(screen)
    }

    /// Draws; nothing once the terminal was given back.
    pub(crate) fn draw(&mut self, render: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        if lock().is_none() {
            return Ok(());
        }
        let area = size();
        if area != self.area {
            self.area = area;
            self.terminal = terminal(area)?;
            stderr().write_all(CLEAR)?;
        }
        self.terminal.draw(render).map(|_| ())
    }

    /// The keys that were typed since the last call, as bytes; does not wait.
    pub(crate) fn keys(&mut self) -> Vec<u8> {
        let mut keys = Vec::new();
        while self.has_keys && keys.len() < KEYS_MAX {
            let input = stdin();
            let mut input_ready = [PollFd::new(&input, PollFlags::IN)];
            if !poll(&mut input_ready, Some(&Timespec::default())).is_ok_and(|ready| ready > 0) {
                break;
            }
            let mut typed = [0; 64];
            match rustix::io::read(&input, &mut typed) {
                Ok(len @ 1..) => keys.extend_from_slice(&typed[..len]),
                // The terminal is gone.
                _ => self.has_keys = false,
            }
        }
        keys
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

/// Gives the terminal back, where a screen has it.
pub(crate) fn restore() {
    let Some(modes) = lock().take() else { return };
    // A terminal that is gone needs nothing.
    if let Some(modes) = modes {
        let _ = tcsetattr(stdin(), OptionalActions::Now, &modes);
    }
    let _ = stderr().write_all(LEAVE);
}

/// Restores the terminal before a panic speaks.
fn restore_on_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            restore();
            before(info);
        }));
    });
}

/// One of a fixed size: left alone it would ask standard output for the size, which may be a file.
fn terminal(area: Rect) -> io::Result<Drawn> {
    let backend = TermionBackend::new(BufWriter::with_capacity(OUTPUT_LEN, stderr()));
    Terminal::with_options(backend, TerminalOptions { viewport: Viewport::Fixed(area) })
}

/// Size of the terminal behind standard error, in letters.
fn size() -> Rect {
    let known = tcgetwinsize(stderr()).ok().filter(|size| size.ws_col > 0 && size.ws_row > 0);
    known.map_or(Rect::new(0, 0, 80, 24), |size| Rect::new(0, 0, size.ws_col, size.ws_row))
}

/// Terminal that a screen has taken: `None` without one; inside, the modes from before, where it
/// has changed them.
static OPEN: Mutex<Option<Option<Termios>>> = Mutex::new(None);

fn lock() -> MutexGuard<'static, Option<Option<Termios>>> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The other screen, without a cursor, empty.
const ENTER: &[u8] = b"\x1b[?1049h\x1b[?25l\x1b[2J";

const CLEAR: &[u8] = b"\x1b[2J";

/// Plain letters, a cursor, and the screen from before.
const LEAVE: &[u8] = b"\x1b[m\x1b[?25h\x1b[?1049l";

/// Holds a frame, so that it is one write.
const OUTPUT_LEN: usize = 1 << 16;

/// More keys at a time are left for the next.
const KEYS_MAX: usize = 1_024;
