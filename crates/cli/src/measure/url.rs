//! Targets as URLs: what `redis://localhost:6379` says of the target, the transport and the
//! application.
//!
//! | scheme | over | port | application |
//! |---|---|---|---|
//! | `redis`, `rediss` | TCP, TLS | 6379 | `redis`; a user and a password log in |
//! | `memcached` | TCP | 11211 | `memcached-ascii` |
//! | `http`, `https` | TCP, TLS | 80, 443 | `http` with the path |
//! | `h2`, `h2s` | TCP, TLS | 80, 443 | `http2` with the path |
//! | `grpc`, `grpcs` | TCP, TLS | to be said | `grpc` with the path as its method |
//! | `postgres`, `postgresql` | TCP, or TLS with `?sslmode=verify-full` | 5432 | `postgres` with the path as its database; a user and a password log in |
//! | one of these and `+unix`, such as `redis+unix:///run/redis.sock` | a Unix socket | | the same |
//! | `unix:PATH` | a Unix socket | | that of `--app` |
//! | the name of a transport | it | to be said | that of `--app` |
//!
//! Invariant: a password is in no text that is printed, saved or put into a result.

use std::net::IpAddr;

use anyhow::{Context as _, Result, bail, ensure};
use tailcut_instrument::job::{Credentials, Transport};

use super::flags::Flags;

/// Contents of a URL.
#[derive(Clone, Debug, PartialEq)]
struct Url {
    scheme: &'static Scheme,
    transport: Transport,
    /// Nothing may say another transport.
    names_transport: bool,
    /// `HOST:PORT`.
    target: String,
    /// The application in its text form, where the scheme has one.
    app: Option<String>,
    /// The name to ask for and to verify over TLS; absent for an address.
    server_name: Option<String>,
    login: Option<Credentials>,
}

/// A scheme.
#[derive(Debug, PartialEq)]
struct Scheme {
    name: &'static str,
    transport: Transport,
    /// The port where the URL has none.
    port: Option<u16>,
    app: Option<&'static str>,
    /// The scheme says which transport, so that no flag may say another.
    names_transport: bool,
}

impl Url {
    /// Contents that the scheme alone gives.
    fn new(scheme: &'static Scheme) -> Self {
        let (transport, names_transport) = (scheme.transport, scheme.names_transport);
        let (target, app, server_name, login) = (String::new(), None, None, None);
        Self { scheme, transport, names_transport, target, app, server_name, login }
    }
}

/// Puts what the URLs say into the flags, and returns the credentials that they hold.
///
/// # Errors
///
/// A URL that cannot be read, URLs that differ in more than their hosts, and a flag that says
/// otherwise.
pub(super) fn apply(urls: &[String], flags: &mut Flags) -> Result<Option<Credentials>> {
    if let Some(url) = flags.target.iter().find(|target| target.contains("://")) {
        bail!("--target takes HOST:PORT; write {} without --target", masked(url));
    }
    let Some((first, others)) = urls.split_first() else { return Ok(None) };
    ensure!(flags.target.is_empty(), "a URL and --target both say where; leave one of them out");
    let url = read(first)?;
    flags.target.push(url.target.clone());
    for other in others {
        let other = read(other)?;
        flags.target.push(other.target.clone());
        let same = (other.scheme, other.transport, &other.app, &other.login)
            == (url.scheme, url.transport, &url.app, &url.login);
        ensure!(same, "several URLs may differ in host and port, and in nothing else");
    }
    let (name, transport, names_transport) = (url.scheme.name, url.transport, url.names_transport);
    match flags.transport {
        Some(said) if said != transport && names_transport => {
            let said = said.as_ref();
            bail!("{name}:// goes over {}, and --transport says {said}", transport.as_ref())
        }
        Some(_) => {}
        None => flags.transport = Some(transport),
    }
    apply_app(&url, flags)?;
    if flags.transport == Some(Transport::Tls) && flags.server_name.is_none() {
        flags.server_name = url.server_name;
    }
    Ok(url.login)
}

/// The application of the URL, unless a flag says more about the same one.
fn apply_app(url: &Url, flags: &mut Flags) -> Result<()> {
    let Some(usual) = url.scheme.app else { return Ok(()) };
    let name = url.scheme.name;
    let Some(said) = &flags.app else {
        let Some(app) = &url.app else {
            bail!("{name}:// needs a method: {name}://HOST:PORT/package.Service/Method, or --app")
        };
        flags.app = Some(app.parse().map_err(anyhow::Error::msg)?);
        return Ok(());
    };
    // HTTP of either version is spoken at a URL of HTTP.
    let family = |app: &str| match app.split('-').next().unwrap_or_default() {
        "http2" => "http".to_owned(),
        first => first.to_owned(),
    };
    if family(said.name()) != family(usual) {
        bail!("{name}:// asks for {usual}, and --app for {}", said.name());
    }
    if let (Some(app), "postgres") = (&url.app, usual) {
        // The path is the database, which is no part of what is asked.
        let database = app.strip_prefix("postgres:").filter(|_| !said.text().contains("database="));
        let more = database.map(|database| {
            let separator = if said.text().contains(':') { ',' } else { ':' };
            format!("{}{separator}{database}", said.text())
        });
        flags.app = more
            .map(|app| app.parse())
            .transpose()
            .map_err(anyhow::Error::msg)?
            .or(flags.app.take());
        return Ok(());
    }
    let is_bare = |app: &String| app == usual || *app == format!("{usual}:/");
    if !url.app.as_ref().is_none_or(is_bare) {
        bail!("the URL says what to ask for, and --app too; leave the path or --app out");
    }
    Ok(())
}

fn read(text: &str) -> Result<Url> {
    let shown = masked(text);
    if let Some(path) = text.strip_prefix("unix:") {
        let path = path.strip_prefix("//").unwrap_or(path);
        ensure!(!path.is_empty(), "{shown}: write unix:PATH");
        let target = format!("unix:{path}");
        let scheme = SCHEMES.iter().find(|scheme| scheme.name == "tcp");
        let scheme = scheme.context("TCP has a scheme")?;
        return Ok(Url { target, ..Url::new(scheme) });
    }
    let Some((scheme, rest)) = text.split_once("://") else {
        bail!("{shown:?} is no URL; write one such as redis://localhost:6379, or --target {shown}");
    };
    let (scheme, is_unix) = match scheme.strip_suffix("+unix") {
        Some(scheme) => (scheme, true),
        None => (scheme, false),
    };
    let Some(scheme) = SCHEMES.iter().find(|known| known.name == scheme) else {
        let known: Vec<&str> = SCHEMES.iter().map(|scheme| scheme.name).collect();
        bail!("{shown}: the schemes are {}", known.join(", "));
    };
    let authority_len = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(authority_len);
    let (path, mode) = split_mode(scheme, path, &shown)?;
    let (userinfo, host) = match authority.rsplit_once('@') {
        Some((userinfo, host)) => (Some(userinfo), host),
        None => (None, authority),
    };
    let login = userinfo.map(|userinfo| credentials(scheme, userinfo, &shown)).transpose()?;
    if is_unix {
        let takes = scheme.app.is_some() && scheme.transport == Transport::Tcp;
        ensure!(takes, "{shown}: over a Unix socket goes what goes over TCP, without TLS");
        ensure!(host.is_empty(), "{shown}: three slashes come before the path");
        let path = unescaped(path)?;
        ensure!(path.len() > 1, "{shown}: the path of the socket is missing");
        let app = app(scheme, "", &shown)?;
        ensure!(mode != Some(Transport::Tls), "{shown}: a Unix socket is reached without TLS");
        return Ok(Url { target: format!("unix:{path}"), app, login, ..Url::new(scheme) });
    }
    let (host, port) = split_port(host);
    let port = match (port, scheme.port) {
        (Some(port), _) => port.to_owned(),
        (None, Some(port)) => port.to_string(),
        (None, None) => bail!("{shown}: say which port: {}://HOST:PORT", scheme.name),
    };
    ensure!(!host.is_empty(), "{shown}: a host is missing");
    let is_port = port.parse::<u16>().is_ok_and(|port| port > 0);
    // It may be the beginning of a password that was not escaped.
    ensure!(is_port, "{shown}: what follows the host is no port");
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    Ok(Url {
        scheme,
        transport: mode.unwrap_or(scheme.transport),
        names_transport: scheme.names_transport || mode.is_some(),
        target: format!("{host}:{port}"),
        app: app(scheme, path, &shown)?,
        server_name: bare.parse::<IpAddr>().is_err().then(|| bare.to_owned()),
        login,
    })
}

/// The path, and what `?sslmode=` behind it says of the transport, as other clients of PostgreSQL
/// have it.
fn split_mode<'a>(
    scheme: &Scheme,
    path: &'a str,
    shown: &str,
) -> Result<(&'a str, Option<Transport>)> {
    let is_postgres = scheme.app == Some("postgres");
    let Some((path, mode)) = path.split_once("?sslmode=").filter(|_| is_postgres) else {
        return Ok((path, None));
    };
    match mode {
        "disable" => Ok((path, Some(Transport::Tcp))),
        "require" | "verify-ca" | "verify-full" => Ok((path, Some(Transport::Tls))),
        _ => bail!(
            "{shown}: sslmode is disable or verify-full; require and verify-ca verify as much, and --insecure nothing"
        ),
    }
}

/// A host, which may be an IPv6 address in brackets, and the port behind it.
fn split_port(host: &str) -> (&str, Option<&str>) {
    match host.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => (name, Some(port)),
        _ => (host, None),
    }
}

/// The application of a scheme at a path.
fn app(scheme: &Scheme, path: &str, shown: &str) -> Result<Option<String>> {
    let Some(app) = scheme.app else {
        ensure!(matches!(path, "" | "/"), "{shown}: only http and https have a path");
        return Ok(None);
    };
    match app {
        "http" | "http2" => Ok(Some(http(app, path))),
        "grpc" if matches!(path, "" | "/") => Ok(None),
        "grpc" => {
            ensure!(!path.contains(','), "{shown}: write which method, and its message with --app");
            Ok(Some(format!("grpc:{}", &path[1..])))
        }
        "postgres" => {
            let database = unescaped(path.strip_prefix('/').unwrap_or(path))?;
            let is_name = !database.contains(['"', '\\', '/', '?', '#', ',', '=']);
            ensure!(is_name, "{shown}: the path is the name of a database, and nothing follows it");
            Ok(Some(match database.as_str() {
                "" => app.to_owned(),
                database => format!("{app}:database={database}"),
            }))
        }
        "redis" if matches!(path, "" | "/" | "/0") => Ok(Some(app.to_owned())),
        "redis" => bail!("{shown}: only database 0 is measured"),
        _ => {
            ensure!(matches!(path, "" | "/"), "{shown}: only http and https have a path");
            Ok(Some(app.to_owned()))
        }
    }
}

/// The text form of a GET of a path, which is in quotes where a comma would end it.
fn http(app: &str, path: &str) -> String {
    let path = path.split('#').next().unwrap_or_default();
    let slash = if path.starts_with('/') { "" } else { "/" };
    let mut escaped = String::from(slash);
    for byte in path.bytes() {
        match byte {
            b'"' | b'\\' => escaped.push_str(&format!("%{byte:02X}")),
            byte if byte.is_ascii_graphic() => escaped.push(char::from(byte)),
            byte => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    if escaped.contains(',') {
        format!("{app}:path=\"{escaped}\"")
    } else {
        format!("{app}:{escaped}")
    }
}

fn credentials(scheme: &Scheme, userinfo: &str, shown: &str) -> Result<Credentials> {
    ensure!(
        matches!(scheme.app, Some("redis" | "postgres")),
        "{shown}: only Redis and PostgreSQL are logged in to; HTTP takes --app 'http:/,header=Authorization: ...'"
    );
    let (user, password) = userinfo.split_once(':').unwrap_or((userinfo, ""));
    ensure!(
        // A server of PostgreSQL may trust a user.
        !password.is_empty() || scheme.app == Some("postgres"),
        "{shown}: write redis://USER:PASSWORD@HOST or redis://:PASSWORD@HOST"
    );
    let user = Some(unescaped(user)?).filter(|user| !user.is_empty());
    Ok(Credentials { user, password: unescaped(password)? })
}

/// Text whose `%XX` stand for bytes. The error names nothing of it.
fn unescaped(text: &str) -> Result<String> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|digit| char::from(digit).to_digit(16));
        let (Some(high), Some(low)) = (digit(), digit()) else {
            bail!("a % in the user or the password is written %25");
        };
        bytes.push((high << 4 | low) as u8);
    }
    String::from_utf8(bytes).map_err(|_| anyhow::anyhow!("a user or a password is not UTF-8"))
}

/// A word of a command line without the credentials of the URL that it may be or hold.
pub(super) fn masked(word: &str) -> String {
    let Some(at) = word.find("://") else { return word.to_owned() };
    let (scheme, rest) = word.split_at(at + "://".len());
    let authority_len = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    // A password that was not escaped may hold what ends an authority.
    let end = rest[..authority_len].rfind('@').or_else(|| rest.rfind('@'));
    match end {
        Some(end) => format!("{scheme}***{}", &rest[end..]),
        None => word.to_owned(),
    }
}

/// A scheme of an application that others serve.
const fn of_app(name: &'static str, transport: Transport, port: u16, app: &'static str) -> Scheme {
    let names_transport = matches!(transport, Transport::Tls);
    Scheme { name, transport, port: Some(port), app: Some(app), names_transport }
}

const fn of_transport(name: &'static str, transport: Transport) -> Scheme {
    Scheme { name, transport, port: None, app: None, names_transport: true }
}

/// A scheme of an application whose servers have no port of their own.
const fn of_app_at(name: &'static str, transport: Transport, app: &'static str) -> Scheme {
    Scheme { port: None, ..of_app(name, transport, 0, app) }
}

const SCHEMES: &[Scheme] = &[
    of_app("redis", Transport::Tcp, 6379, "redis"),
    of_app("rediss", Transport::Tls, 6379, "redis"),
    of_app("memcached", Transport::Tcp, 11211, "memcached-ascii"),
    of_app("http", Transport::Tcp, 80, "http"),
    of_app("https", Transport::Tls, 443, "http"),
    of_app("h2", Transport::Tcp, 80, "http2"),
    of_app("h2s", Transport::Tls, 443, "http2"),
    of_app_at("grpc", Transport::Tcp, "grpc"),
    of_app_at("grpcs", Transport::Tls, "grpc"),
    of_app("postgres", Transport::Tcp, 5432, "postgres"),
    of_app("postgresql", Transport::Tcp, 5432, "postgres"),
    of_transport("tcp", Transport::Tcp),
    of_transport("tls", Transport::Tls),
    of_transport("udp", Transport::Udp),
    of_transport("r2p2", Transport::R2p2),
    of_transport("homa", Transport::Homa),
    of_transport("homa-ip", Transport::HomaIp),
    of_transport("homa-tcp", Transport::HomaTcp),
    of_transport("netclone", Transport::NetClone),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(urls: &[&str], more: &str) -> Result<(Flags, Option<Credentials>)> {
        let mut flags: Flags = toml::from_str(more).expect("flags");
        let urls: Vec<String> = urls.iter().map(|&url| url.to_owned()).collect();
        let login = apply(&urls, &mut flags)?;
        Ok((flags, login))
    }

    fn check(url: &str, more: &str, expected: [&str; 3]) {
        let (flags, _) = applied(&[url], more).expect(url);
        let transport = flags.transport.expect("a transport");
        let app = flags.app.as_ref().map_or("", |app| app.text());
        assert_eq!([flags.target[0].as_str(), transport.as_ref(), app], expected, "{url} {more}");
    }

    #[test]
    fn a_url_says_where_over_what_and_what() {
        check("redis://localhost", "", ["localhost:6379", "tcp", "redis"]);
        check("redis://localhost:7000/0", "", ["localhost:7000", "tcp", "redis"]);
        check("rediss://h", "", ["h:6379", "tls", "redis"]);
        check("memcached://[::1]", "", ["[::1]:11211", "tcp", "memcached-ascii"]);
        check("http://h", "", ["h:80", "tcp", "http:/"]);
        check("http://h:8080/a?b=c#d", "", ["h:8080", "tcp", "http:/a?b=c"]);
        check("http://h?b", "", ["h:80", "tcp", "http:/?b"]);
        check("http://h/a,b", "", ["h:80", "tcp", "http:path=\"/a,b\""]);
        check("http://h/ä b", "", ["h:80", "tcp", "http:/%C3%A4%20b"]);
        check("https://h", "", ["h:443", "tls", "http:/"]);
        check("h2://h/a,b", "", ["h:80", "tcp", "http2:path=\"/a,b\""]);
        check("h2s://h", "", ["h:443", "tls", "http2:/"]);
        check("grpc://h:1/a.B/C", "", ["h:1", "tcp", "grpc:a.B/C"]);
        check("grpcs://h:1/a.B/C", "", ["h:1", "tls", "grpc:a.B/C"]);
        check("redis+unix:///run/r.sock", "", ["unix:/run/r.sock", "tcp", "redis"]);
        check("http+unix:///run/a%20b", "", ["unix:/run/a b", "tcp", "http:/"]);
        let echo = "app = \"echo:4\"";
        check("unix:/run/e.sock", echo, ["unix:/run/e.sock", "tcp", "echo:4"]);
        check("unix:///run/e.sock", echo, ["unix:/run/e.sock", "tcp", "echo:4"]);
        for transport in ["tcp", "udp", "r2p2", "homa", "homa-ip", "homa-tcp", "netclone"] {
            check(
                &format!("{transport}://h:1"),
                "app = \"echo:64\"",
                ["h:1", transport, "echo:64"],
            );
        }
    }

    #[test]
    fn a_flag_says_more_of_the_same() {
        check("redis://h", "app = \"redis:scan\"", ["h:6379", "tcp", "redis:scan"]);
        check(
            "memcached://h",
            "app = \"memcached-binary\"",
            ["h:11211", "tcp", "memcached-binary"],
        );
        check("memcached://h", "transport = \"udp\"", ["h:11211", "udp", "memcached-ascii"]);
        check("redis://h", "transport = \"tls\"", ["h:6379", "tls", "redis"]);
        check("http://h", "app = \"http:/x\"", ["h:80", "tcp", "http:/x"]);
        check("postgres://h/db", "", ["h:5432", "tcp", "postgres:database=db"]);
        check("postgres://h/db?sslmode=verify-full", "", ["h:5432", "tls", "postgres:database=db"]);
        check("postgres://h?sslmode=require", "", ["h:5432", "tls", "postgres"]);
        check("postgres://h?sslmode=disable", "", ["h:5432", "tcp", "postgres"]);
        check("postgres://h", "transport = \"tls\"", ["h:5432", "tls", "postgres"]);
        check("postgresql://me@h", "", ["h:5432", "tcp", "postgres"]);
        let query = "postgres:query=SELECT 2";
        let both = "postgres:query=SELECT 2,database=db";
        check("postgres://h", &format!("app = \"{query}\""), ["h:5432", "tcp", query]);
        check("postgres://h/db", &format!("app = \"{query}\""), ["h:5432", "tcp", both]);
        check("postgres://h/x", &format!("app = \"{both}\""), ["h:5432", "tcp", both]);
        check("postgres://h/x", "app = \"postgres\"", ["h:5432", "tcp", "postgres:database=x"]);
        check("https://h", "app = \"http2:/x\"", ["h:443", "tls", "http2:/x"]);
        let call = "grpc:a.B/C,hex=00";
        check("grpc://h:1", &format!("app = \"{call}\""), ["h:1", "tcp", call]);
    }

    #[test]
    fn several_urls_spread_connections() {
        let (flags, _) = applied(&["r2p2://a:1", "r2p2://b:2"], "").unwrap();
        assert_eq!(flags.target, ["a:1", "b:2"]);
    }

    #[test]
    fn tls_asks_for_the_name_of_the_url() {
        let name = |url| applied(&[url], "").unwrap().0.server_name;
        assert_eq!(name("https://example.com").as_deref(), Some("example.com"));
        assert_eq!(name("https://127.0.0.1"), None);
        assert_eq!(name("https://[::1]:8443"), None);
        assert_eq!(name("http://example.com"), None);
    }

    #[test]
    fn what_does_not_go_together_is_refused() {
        let check = |urls: &[&str], more: &str, part: &str| {
            let error = applied(urls, more).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        };
        check(&["redis://h"], "target = [\"a:1\"]", "leave one");
        check(&[], "target = [\"redis://h\"]", "without --target");
        check(&["redis://h"], "app = \"http:/\"", "--app for http");
        check(&["http://h/a"], "app = \"http:/b\"", "leave the path or --app out");
        check(&["rediss://h"], "transport = \"tcp\"", "--transport says tcp");
        check(&["udp://h:1"], "transport = \"r2p2\"", "--transport says r2p2");
        check(&["redis://a", "http://b"], "", "differ in host and port");
        check(&["redis://a", "redis://:x@b"], "", "differ in host and port");
        check(&["gopher://h"], "", "the schemes are redis, rediss");
        check(&["localhost:6379"], "", "is no URL");
        check(&["r2p2://h"], "", "r2p2://HOST:PORT");
        check(&["grpc://h/a.B/C"], "", "grpc://HOST:PORT");
        check(&["grpc://h:1"], "", "needs a method");
        check(&["grpc://h:1/a.B"], "", "which method");
        check(&["grpc://h:1"], "app = \"redis\"", "--app for redis");
        check(&["redis://h:port"], "", "is no port");
        check(&["redis://:1"], "", "a host is missing");
        check(&["redis://h/3"], "", "database 0");
        check(&["redis+unix://run/redis.sock"], "", "three slashes");
        check(&["rediss+unix:///run/redis.sock"], "", "without TLS");
        check(&["udp+unix:///run/redis.sock"], "", "without TLS");
        check(&["redis+unix:///"], "", "path of the socket");
        check(&["unix:"], "", "unix:PATH");
        check(&["http://me:x@h"], "", "Authorization");
        check(&["postgres://h/a?b=c"], "", "the name of a database");
        check(&["postgres://h/a?sslmode=prefer"], "", "sslmode is disable or verify-full");
        let over_tcp = "transport = \"tcp\"";
        check(&["postgres://h?sslmode=require"], over_tcp, "goes over tls");
        check(&["postgres+unix:///s?sslmode=require"], "", "without TLS");
    }

    #[test]
    fn a_password_is_taken_and_never_shown() {
        let login = |url| applied(&[url], "").unwrap().1.unwrap();
        let user = |user: &str| Some(user.to_owned());
        let secret = "s@cr:t/%".to_owned();
        assert_eq!(
            login("redis://me:s%40cr%3At%2F%25@h"),
            Credentials { user: user("me"), password: secret.clone() }
        );
        assert_eq!(login("redis://:pw@h"), Credentials { user: None, password: "pw".to_owned() });
        assert!(!format!("{:?}", login("redis://:pw@h")).contains("pw"));
        for url in ["redis://me:hidden@h:port", "redis://me:hid/hidden@h", "http://me:hidden@h"] {
            let error = format!("{:#}", applied(&[url], "").unwrap_err());
            assert!(!error.contains("hid"), "{error}");
        }
        for (url, shown) in [
            ("redis://me:pw@h/0", "redis://***@h/0"),
            ("redis://me:p/w@h", "redis://***@h"),
            ("http://h/a@b", "http://***@b"),
            ("redis://h", "redis://h"),
            ("--rate", "--rate"),
        ] {
            assert_eq!(masked(url), shown);
        }
    }
}
