//! Census of the servers: their number by standing, and their total load.

/// Standing of a server among the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Standing {
    /// Nothing: it is not probed, or on its way out.
    #[default]
    Aside,
    /// It has not answered yet.
    Starting,
    /// It answers.
    Answering,
    /// It does not.
    Silent,
}

/// State of most servers, should one more not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Crowd {
    /// At least half of all would still answer.
    Answers,
    /// More than half of all would be silent.
    IsSilent,
}

/// Sums over the servers that answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Load {
    /// Requests placed and not known to be concluded.
    pub(super) outstanding: u32,
    /// Requests that wait for a worker, of those that they report.
    pub(super) waiting: u32,
    /// Servers in service, those behind other routers among them.
    pub(super) servers: u32,
}

impl Load {
    /// Puts the load of a server in the place of what it had.
    fn replace(&mut self, before: Self, now: Self) {
        // A sum that has wrapped is right again when what made it wrap is gone.
        let change = |sum: u32, before: u32, now: u32| sum.wrapping_sub(before).wrapping_add(now);
        self.outstanding = change(self.outstanding, before.outstanding, now.outstanding);
        self.waiting = change(self.waiting, before.waiting, now.waiting);
        self.servers = change(self.servers, before.servers, now.servers);
    }
}

/// A server's part of a census.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counted {
    /// Its standing.
    pub(super) standing: Standing,
    /// Its part of the sum over all servers.
    pub(super) load: Load,
}

/// The sums.
#[derive(Debug, Default)]
pub(super) struct Census([u32; 4], Load);

impl Census {
    pub(super) fn count(&self, standing: Standing) -> u32 {
        self.0[standing as usize]
    }

    /// State of most servers if one more were silent.
    pub(super) fn crowd(&self) -> Crowd {
        let silent = self.count(Standing::Silent);
        let all = silent + self.count(Standing::Starting) + self.count(Standing::Answering);
        if 2 * (silent + 1) <= all { Crowd::Answers } else { Crowd::IsSilent }
    }

    /// The load of all together.
    pub(super) fn load(&self) -> Load {
        self.1
    }

    /// Counts a server as what it is now, instead of as what it was; true if it has another
    /// standing than before.
    pub(super) fn recount(&mut self, counted: &mut Counted, now: Counted) -> bool {
        let before = std::mem::replace(counted, now);
        self.1.replace(before.load, now.load);
        if before.standing == now.standing {
            return false;
        }
        self.leave(before.standing);
        if now.standing != Standing::Aside {
            self.0[now.standing as usize] += 1;
        }
        true
    }

    /// A server is removed.
    pub(super) fn remove(&mut self, counted: Counted) {
        self.1.replace(counted.load, Load::default());
        self.leave(counted.standing);
    }

    fn leave(&mut self, standing: Standing) {
        if standing != Standing::Aside {
            self.0[standing as usize] -= 1;
        }
    }
}
