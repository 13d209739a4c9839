//! Agents in text form: `local`, `tcp:HOST:PORT`, `ssh:USER@HOST`, each with options after
//! commas.
//!
//! Invariant: what is accepted as a destination of ssh holds no character that ssh, or a shell,
//! could take for more than a name.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::job::Role;

/// One agent of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentSpec {
    /// Place of the agent.
    pub place: Place,
    /// `,role=NAME`; symmetric by default.
    pub role: Role,
}

/// Place of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Threads of this process.
    Local,
    /// A `tailcut agent --listen` at `HOST:PORT`.
    Tcp(String),
    /// A host that the system's ssh reaches.
    Ssh(Destination),
}

/// Destination of an ssh connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    /// `HOST` or `USER@HOST`; `HOST` may be a name of ssh's configuration.
    pub name: String,
    /// `,config=FILE`: a configuration to use instead of the user's, as `ssh -F` takes it.
    pub config: Option<PathBuf>,
}

impl FromStr for AgentSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split(',');
        let place = Place::parse(parts.next().unwrap_or_default())?;
        let mut spec = Self { place, role: Role::default() };
        for option in parts {
            spec.set(option).map_err(|error| format!("{text:?}: {error}"))?;
        }
        Ok(spec)
    }
}

impl AgentSpec {
    fn set(&mut self, option: &str) -> Result<(), String> {
        match option.split_once('=') {
            Some(("role", role)) => {
                self.role = role.parse().map_err(|_| {
                    format!("there is no role {role:?}: write symmetric, throughput or latency")
                })?;
            }
            Some(("config", file)) if !file.is_empty() => match &mut self.place {
                Place::Ssh(destination) => destination.config = Some(PathBuf::from(file)),
                Place::Local | Place::Tcp(_) => {
                    return Err(
                        "config=FILE is ssh's, and this agent is not reached by ssh".to_owned()
                    );
                }
            },
            _ => {
                return Err(format!(
                    "{option:?} is no option of an agent: there are role=NAME and, for ssh, config=FILE"
                ));
            }
        }
        Ok(())
    }
}

impl Place {
    fn parse(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "local" => Ok(Self::Local),
            Some(("tcp", address)) => parse_address(address).map(Self::Tcp),
            Some(("ssh", name)) => parse_destination(name),
            _ => Err(format!("{text:?} is no agent: write local, tcp:HOST:PORT or ssh:USER@HOST")),
        }
    }
}

fn parse_address(address: &str) -> Result<String, String> {
    let is_address = address.rsplit_once(':').is_some_and(|(host, port)| {
        let is_whole = !host.is_empty()
            && (!host.contains(':') || (host.starts_with('[') && host.ends_with(']')));
        is_whole && port.parse::<u16>().is_ok_and(|port| port > 0)
    });
    if is_address {
        Ok(address.to_owned())
    } else {
        Err(format!("{address:?}: write tcp:HOST:PORT, such as tcp:10.0.0.2:7077"))
    }
}

fn parse_destination(name: &str) -> Result<Place, String> {
    let (user, host) = name.split_once('@').unwrap_or(("user", name));
    let is_name = |part: &str| {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-:".contains(&byte);
        !part.is_empty() && !part.starts_with('-') && part.bytes().all(is_plain)
    };
    if is_name(user) && is_name(host) {
        return Ok(Place::Ssh(Destination { name: name.to_owned(), config: None }));
    }
    Err(format!(
        "{name:?}: write ssh:HOST or ssh:USER@HOST, with names of letters, digits and . _ - :"
    ))
}

impl fmt::Display for AgentSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Local => f.write_str("local")?,
            Place::Tcp(address) => write!(f, "tcp:{address}")?,
            Place::Ssh(destination) => write!(f, "ssh:{}", destination.name)?,
        }
        if let Place::Ssh(Destination { config: Some(file), .. }) = &self.place {
            write!(f, ",config={}", file.display())?;
        }
        match self.role {
            Role::Symmetric => Ok(()),
            role => write!(f, ",role={}", role.as_ref()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, place: Place, role: Role) {
        let spec = AgentSpec { place, role };
        assert_eq!(text.parse(), Ok(spec.clone()), "{text}");
        assert_eq!(spec.to_string().parse(), Ok(spec), "it is written as it is read");
    }

    fn check_mistake(text: &str, says: &str) {
        let error = text.parse::<AgentSpec>().unwrap_err();
        assert!(error.contains(says), "{text}: {error}");
    }

    fn ssh(name: &str, config: Option<&str>) -> Place {
        Place::Ssh(Destination { name: name.to_owned(), config: config.map(PathBuf::from) })
    }

    #[test]
    fn agents_are_written_so() {
        check("local", Place::Local, Role::Symmetric);
        check("local,role=latency", Place::Local, Role::Latency);
        check(
            "tcp:10.0.0.2:7077,role=throughput",
            Place::Tcp("10.0.0.2:7077".to_owned()),
            Role::Throughput,
        );
        check("tcp:[fd00::1]:7077", Place::Tcp("[fd00::1]:7077".to_owned()), Role::Symmetric);
        check(
            "tcp:load-1:7077,role=symmetric",
            Place::Tcp("load-1:7077".to_owned()),
            Role::Symmetric,
        );
        check("ssh:load-1", ssh("load-1", None), Role::Symmetric);
        check("ssh:me@fd00::1,role=latency", ssh("me@fd00::1", None), Role::Latency);
        check(
            "ssh:me@load-1,config=hosts/ssh,role=latency",
            ssh("me@load-1", Some("hosts/ssh")),
            Role::Latency,
        );
    }

    #[test]
    fn a_mistake_is_answered_with_what_to_write() {
        check_mistake("", "write local, tcp:HOST:PORT or ssh:USER@HOST");
        check_mistake("remote", "write local");
        check_mistake("local:1", "write local");
        check_mistake("tcp:10.0.0.2", "tcp:10.0.0.2:7077");
        check_mistake("tcp::7077", "tcp:HOST:PORT");
        check_mistake("tcp:10.0.0.2:0", "tcp:HOST:PORT");
        check_mistake("tcp:fd00::1:7077", "tcp:HOST:PORT");
        check_mistake("ssh:", "ssh:USER@HOST");
        check_mistake("ssh:@host", "ssh:USER@HOST");
        check_mistake("local,role=loader", "write symmetric, throughput or latency");
        check_mistake("local,config=x", "ssh's");
        check_mistake("local,threads=2", "no option");
        check_mistake("local,role", "no option");
    }

    #[test]
    fn nothing_that_ssh_or_a_shell_would_obey_is_a_destination() {
        for name in [
            "-oProxyCommand=x",
            "me@-oX",
            "a b",
            "a;b",
            "$(x)",
            "a'b",
            "a\nb",
            "me@a@b",
            "a/b",
            "a%h",
        ] {
            check_mistake(&format!("ssh:{name}"), "ssh:USER@HOST");
        }
    }
}
