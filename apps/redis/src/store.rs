//! Redis as a store: who runs commands, and by which rules.

use tailcut_proto::node::Time;

use crate::api::{Api, Context, Detached, Rules, Version};
use crate::service::Store;

/// The server that the module is part of.
#[derive(Debug)]
pub(crate) struct Redis {
    /// Redis' functions.
    api: Api,
    /// Context that commands run in, of one kind with those of threads, which is checked against
    /// `maxmemory` as of now, where that of an event would be as of the last command of a plain
    /// client.
    context: Detached,
    /// The user that was named, if one was.
    user: Option<String>,
    /// Reason why calls may not run, as of the last look.
    refusal: Option<String>,
    /// Time of the next look.
    look_at: Time,
    /// The user has been looked up in this turn.
    is_user_set: bool,
}

impl Redis {
    /// The server, as seen by a user, or by `default`.
    ///
    /// # Errors
    ///
    /// Where `default` may not be used, or the server is one of a cluster.
    pub(crate) fn open(
        api: Api,
        context: &Context<'_>,
        user: Option<String>,
    ) -> Result<Self, String> {
        let context = context.detached(api);
        let mut redis = Self { api, context, user, refusal: None, look_at: 0, is_user_set: false };
        if redis.context.is_of_cluster() {
            return Err("a cluster redirects its clients, which calls do not follow".to_owned());
        }
        // Users of a configuration file come after the modules: one that was named is looked for at
        // the first call.
        match redis.look() {
            Some(refusal) if redis.user.is_none() => Err(refusal),
            _ => Ok(redis),
        }
    }

    /// A turn begins: what is known of the user may have changed.
    pub(crate) fn begin(&mut self) {
        self.is_user_set = false;
    }

    fn user(&self) -> &str {
        self.user.as_deref().unwrap_or("default")
    }

    /// Reason why calls may not run: the user is not there or off, or has a password and was not
    /// named.
    fn look(&mut self) -> Option<String> {
        let name = self.user().to_owned();
        let mut reply = Vec::new();
        let command: [&[u8]; 3] = [b"ACL", b"GETUSER", name.as_bytes()];
        self.context.call(&command, (Rules::Own, Version::Resp2), &mut reply);
        let has = |flag: &[u8]| reply.windows(flag.len()).any(|window| window == flag);
        if !has(b"\r\non\r\n") {
            return Some(format!("NOAUTH there is no user `{name}` that is on"));
        }
        if self.user.is_none() && !has(b"\r\nnopass\r\n") {
            let hint = "name the user that calls run as by `user NAME` behind loadmodule";
            return Some(format!("NOAUTH the user `default` has a password: {hint}"));
        }
        None
    }
}

impl Store for Redis {
    fn admit(&mut self, now: Time) -> Result<(), String> {
        if now >= self.look_at {
            self.look_at = now + LOOK_NS;
            self.refusal = self.look();
        }
        if let Some(refusal) = &self.refusal {
            return Err(refusal.clone());
        }
        if !self.is_user_set {
            let user = self.api.user(self.user());
            self.context.set_user(user.ok_or("NOAUTH the user is gone")?);
            self.is_user_set = true;
        }
        Ok(())
    }

    fn is_paused(&self) -> bool {
        self.api.is_paused()
    }

    fn is_logging(&self) -> bool {
        self.context.is_logging()
    }

    fn run(&mut self, command: &[&[u8]], is_resp3: bool, out: &mut Vec<u8>) {
        let name = command.first().copied().unwrap_or_default();
        let is_script = SCRIPTS.iter().any(|script| script.as_bytes().eq_ignore_ascii_case(name));
        let rules = if is_script { Rules::Plain } else { Rules::Script };
        let version = if is_resp3 { Version::Resp3 } else { Version::Resp2 };
        if !self.context.call(command, (rules, version), out) {
            out.extend_from_slice(b"-ERR the command cannot be called\r\n");
        }
    }
}

/// Commands that run scripts, or keep them. Redis refuses these where it checks commands as those
/// of a script; their own commands it checks one by one.
const SCRIPTS: [&str; 7] =
    ["EVAL", "EVALSHA", "EVAL_RO", "EVALSHA_RO", "FCALL", "FCALL_RO", "SCRIPT"];

/// Time within which it is seen that the user has changed.
const LOOK_NS: u64 = 1_000_000_000;
