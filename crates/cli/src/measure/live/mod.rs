//! `--live`: a run on the terminal while it is made, and in lines where there is no terminal.
//!
//! | module | what it is |
//! |---|---|
//! | `board` | what is known of the run |
//! | `draw` | the board on a screen |
//!
//! The coordinator's thread draws, between two looks at its agents. Load threads do nothing for it.
//!
//! Invariant: the screen is drawn at most [ten times a second](DRAW_EVERY_NS), and is given back
//! before anything else is printed.

mod board;
mod draw;

use tailcut_instrument::job::Role;
use tailcut_instrument::result::{Point, Verdict};
use tailcut_instrument::view::{AgentStatus, Phase, View};
use tailcut_measure::control::Leg;
use tailcut_measure::slices::Slice;
use tailcut_measure::statistics::quantile::Estimate;
use tailcut_net::clock::Clock;

use self::board::{AgentRow, Board};
use super::text::{self, Style};
use crate::output::printable;
use crate::screen::Screen;

/// A run on the terminal.
pub(super) struct Live {
    board: Board,
    /// `None` before the first run, and where there is no terminal to draw on.
    screen: Option<Screen>,
    style: Style,
    drawn_ns: u64,
    /// Columns that were said as lines.
    lines: usize,
    is_stopped: bool,
}

impl Live {
    /// View of runs that are to know the percentile `p`. It takes the terminal when the first of
    /// them begins, so that whoever opens agents may still ask something.
    pub(super) fn new(title: &str, p: f64, slice_ns: u64) -> Self {
        let board = Board::new(title, p, slice_ns);
        Self {
            board,
            screen: None,
            style: Style::of_stderr(),
            drawn_ns: 0,
            lines: 0,
            is_stopped: false,
        }
    }

    fn open(&mut self) {
        if self.screen.is_some() || !Screen::is_possible() {
            return;
        }
        match Screen::open() {
            Ok(screen) => self.screen = Some(screen),
            Err(error) => eprintln!("there is no live view, but lines: {error:#}"),
        }
    }

    fn draw(&mut self) {
        let Some(screen) = &mut self.screen else {
            return;
        };
        self.drawn_ns = Clock.now();
        let (board, style) = (&self.board, self.style);
        if screen.draw(|frame| draw::draw(board, style, frame)).is_err() {
            // A terminal that is gone ends no measurement.
            self.screen = None;
        }
    }

    /// A line for each column, where there is no screen.
    fn say_column(&mut self) {
        let columns = self.board.points().len();
        if columns == self.lines {
            return;
        }
        self.lines = columns;
        if let Some(line) = self.board.line() {
            eprintln!("{line}");
        }
    }
}

impl View for Live {
    fn begin(&mut self, phase: Phase, leg: Option<&Leg>) {
        self.board.begin(phase, leg);
        if phase == Phase::Preparing {
            self.lines = 0;
            self.open();
        }
        self.draw();
    }

    fn follows(&self) -> bool {
        true
    }

    fn take(&mut self, slice: &Slice, role: Role) {
        self.board.take(slice, role);
    }

    fn show(&mut self, passed_ns: u64, agents: &[AgentStatus<'_>]) {
        self.board.pass(passed_ns);
        if self.screen.is_none() {
            return self.say_column();
        }
        if Clock.now().saturating_sub(self.drawn_ns) >= DRAW_EVERY_NS {
            self.board.agents = agents.iter().map(row).collect();
            self.draw();
        }
    }

    fn note_look(&mut self, known: Option<&Estimate>) {
        self.board.note_look(known);
    }

    fn is_stopped(&mut self) -> bool {
        let keys = self.screen.as_mut().map(Screen::keys).unwrap_or_default();
        self.is_stopped |= keys.iter().any(|key| STOP_KEYS.contains(key));
        self.is_stopped
    }

    fn close(&mut self) {
        if self.screen.take().is_some() {
            self.board.said.iter().for_each(|line| eprintln!("{line}"));
        }
    }

    /// The last line says what the result does: a glance cannot know what all samples tell.
    fn handle_verdict(&mut self, verdict: &Verdict) {
        let line = format!("verdict: {}", text::short_verdict(verdict));
        match self.screen {
            Some(_) => self.board.said.push(line),
            None => eprintln!("{line}"),
        }
    }

    fn handle_point(&mut self, point: &Point) {
        let line = text::line(point);
        match self.screen {
            Some(_) => self.board.said.push(printable(&line)),
            None => eprintln!("{line}"),
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.close();
    }
}

fn row(agent: &AgentStatus<'_>) -> AgentRow {
    AgentRow {
        name: printable(agent.name),
        role: agent.role.as_ref().to_owned(),
        threads: agent.threads,
        connections: agent.connections,
        sent: agent.sent,
        replied: agent.replied,
        standing: printable(agent.standing),
        is_lost: agent.is_lost,
    }
}

/// A screen is drawn at most so often.
const DRAW_EVERY_NS: u64 = 100_000_000;

/// q, and Ctrl-C, which is no signal while the screen is open.
const STOP_KEYS: [u8; 3] = [b'q', b'Q', 0x03];
