//! Credentials of what is measured, from where `ps` does not show them: a file or the environment.
//!
//! | of a login | from |
//! |---|---|
//! | user and password | the URL, before all others |
//! | user | `--user` |
//! | password | `--password-file`, else the variable `TAILCUT_PASSWORD` |
//!
//! Invariant: a password is in no text that is printed, saved or put into a result.

use std::env;

use anyhow::{Context as _, Result, bail, ensure};
use tailcut_instrument::job::Credentials;
use tailcut_instrument::text_file;

use super::flags::Flags;

/// The credentials of a measurement, with those of its URL.
///
/// # Errors
///
/// A file that cannot be read, and credentials for what takes none.
pub(super) fn of(flags: &Flags, url: Option<Credentials>) -> Result<Option<Credentials>> {
    let variable = env::var(VARIABLE).ok().filter(|password| !password.is_empty());
    choose(flags, url, variable)
}

fn choose(
    flags: &Flags,
    url: Option<Credentials>,
    variable: Option<String>,
) -> Result<Option<Credentials>> {
    let app = flags.app.as_ref().map_or("", |app| app.name());
    let logs_in = matches!(app, "redis" | "postgres");
    let is_given = flags.user.is_some() || flags.password_file.is_some();
    if is_given && url.as_ref().is_some_and(|url| !url.password.is_empty()) {
        bail!("the URL has a password, and --user or --password-file has one too; leave one out");
    }
    if !logs_in {
        ensure!(!is_given, "--user and --password-file log in to redis and postgres alone");
        return Ok(url);
    }
    let from_file = match &flags.password_file {
        Some(path) => {
            let shown = path.display();
            let text = text_file::read(path, PASSWORD_BYTES_MAX)
                .with_context(|| format!("cannot read {shown}"))?;
            let password = text.lines().next().unwrap_or_default().to_owned();
            ensure!(!password.is_empty(), "{shown}: its first line is to be the password");
            Some(password)
        }
        None => None,
    };
    let of_url = url.map_or((None, None), |url| {
        (url.user, Some(url.password).filter(|password| !password.is_empty()))
    });
    let user = flags.user.clone().or(of_url.0);
    let password = of_url.1.or(from_file).or(variable);
    Ok(match (user, password) {
        (None, None) => None,
        (Some(_), None) if app == "redis" => {
            bail!("a user of Redis has a password: --password-file FILE, or {VARIABLE}")
        }
        (user, password) => Some(Credentials { user, password: password.unwrap_or_default() }),
    })
}

/// The variable of the environment.
const VARIABLE: &str = "TAILCUT_PASSWORD";
const PASSWORD_BYTES_MAX: u64 = 65_536;

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(toml: &str) -> Flags {
        toml::from_str(toml).expect("flags")
    }

    fn pair(login: Option<Credentials>) -> (Option<String>, Option<String>) {
        login.map_or((None, None), |login| (login.user, Some(login.password)))
    }

    fn url(user: Option<&str>, password: &str) -> Option<Credentials> {
        Some(Credentials { user: user.map(str::to_owned), password: password.to_owned() })
    }

    #[test]
    fn a_password_comes_from_the_url_a_file_or_the_environment() {
        let path = env::temp_dir().join(format!("tailcut-{}-password", std::process::id()));
        std::fs::write(&path, "from file\n").expect("a file");
        let of_file = format!("app = \"redis\"\npassword-file = {:?}", path.display().to_string());
        let some = |text: &str| Some(text.to_owned());
        let login = |toml: &str, url, variable: Option<&str>| {
            pair(choose(&flags(toml), url, variable.map(str::to_owned)).expect("a login"))
        };
        let redis = "app = \"redis\"";
        assert_eq!(login(redis, None, None), (None, None));
        assert_eq!(login(redis, None, Some("env")), (None, some("env")));
        assert_eq!(login(&of_file, None, Some("env")), (None, some("from file")));
        assert_eq!(login(redis, url(Some("me"), "url"), Some("env")), (some("me"), some("url")));
        let user = "app = \"postgres\"\nuser = \"me\"";
        assert_eq!(login(user, None, None), (some("me"), some("")));
        assert_eq!(login(user, None, Some("env")), (some("me"), some("env")));
        let postgres = "app = \"postgres\"";
        assert_eq!(login(postgres, url(Some("me"), ""), Some("env")), (some("me"), some("env")));
        assert_eq!(login("app = \"http:/\"", None, Some("env")), (None, None));
        std::fs::remove_file(path).expect("it is there");
    }

    #[test]
    fn what_does_not_go_together_is_refused() {
        let refused = |toml: &str, url| choose(&flags(toml), url, None).unwrap_err().to_string();
        let both = refused("app = \"redis\"\nuser = \"me\"", url(None, "hidden"));
        assert!(both.contains("leave one out") && !both.contains("hidden"), "{both}");
        assert!(refused("app = \"redis\"\nuser = \"me\"", None).contains("TAILCUT_PASSWORD"));
        assert!(refused("app = \"http:/\"\nuser = \"me\"", None).contains("redis and postgres"));
        let gone = "app = \"redis\"\npassword-file = \"/nowhere/at/all\"";
        assert!(refused(gone, None).contains("cannot read /nowhere/at/all"));
        let empty = refused("app = \"redis\"\npassword-file = \"/dev/null\"", None);
        assert!(empty.contains("its first line"), "{empty}");
    }
}
