//! The module with keys: who has none is not heard, and who may not call is told.

use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use tailcut::sealed::{Cipher, Keys, Role};
use tailcut::{Client, ClientBuilder, Config, Error, Failure, KeySource};
use tailcut_net::keys::file;

use super::server::{RedisServer, line, programs};
use super::{LISTEN, call, random_commands, rejection};

#[test]
fn sealed_calls_have_a_plain_server_s_replies_and_open_ones_none() {
    let files = Files::new("calls");
    for program in programs() {
        let words = format!("{LISTEN} seal {}", files.servers());
        let module = RedisServer::with_module(&program, &words, &[]);
        let plain = RedisServer::plain(&program);
        let (client, mut connection) = (files.connect(&module, 3), plain.connect());
        for command in random_commands(500) {
            let expected = connection.ask_bytes(&command);
            assert_eq!(call(&client, &command), expected, "{}", command.escape_ascii());
        }
        let hasty = ClientBuilder::new().timeout(Duration::from_millis(100));
        let open = hasty.connect(module.address()).expect("a client");
        let error = open.call(&line("SET k1 open")).map(drop).expect_err("it has no keys");
        let Error::Failed { source: Failure::Deadline | Failure::Unreachable, .. } = error else {
            panic!("{error}")
        };
        // What it has sent may come later than its deadline, but before what is sent after that.
        assert_eq!(call(&client, &line("GET k1")), b"$-1\r\n");
        assert_ne!(module.info("seal_unsealed"), "0");
        assert_eq!(module.info("seal_forged"), "0");
    }
}

#[test]
fn a_policy_says_who_may_call_and_another_takes_its_place() {
    let files = Files::new("policy");
    for program in programs() {
        let access = files.write("access", "tailcut-access 1\nallow any *\ndeny 4 *\n");
        let words = format!("{LISTEN} seal {} access {access}", files.servers());
        let module = RedisServer::with_module(&program, &words, &[]);
        let other = files.connect(&module, 4);
        let denied = rejection(&other, &line("PING"));
        assert_eq!(
            denied,
            "the server's access policy: client 4 may not call by bytes that name no method"
        );
        // One that is sent again is refused again.
        assert_ne!(module.info("seal_denied"), "0");
        assert_eq!(module.info("requests"), "0");
        assert_eq!(call(&files.connect(&module, 3), &line("PING")), b"+PONG\r\n");
        files.write("access", "tailcut-access 1\nallow 4 *\n");
        while let Err(error) = other.call(&line("PING")) {
            assert!(matches!(error, Error::Rejected { .. }), "{error}");
        }
    }
}

#[test]
fn a_sealed_module_can_be_unloaded_while_its_files_are_read_again() {
    let files = Files::new("unload");
    let access = files.write("access", "tailcut-access 1\nallow 3 *\n");
    let servers = files.servers();
    for program in programs() {
        let words = format!("{LISTEN} seal {servers} access {access}");
        let options = ["--enable-module-command", "yes"];
        let module = RedisServer::with_module(&program, &words, &options);
        let mut connection = module.connect();
        let path = RedisServer::module();
        let mut load = vec!["MODULE", "LOAD", &path];
        load.extend(words.split(' '));
        for _ in 0..5 {
            assert_eq!(call(&files.connect(&module, 3), &line("PING")), b"+PONG\r\n");
            assert_eq!(connection.ask(&["MODULE", "UNLOAD", "tailcut"]), b"+OK\r\n");
            // Its threads end a moment later.
            let maps = format!("/proc/{}/maps", module.process().as_raw_nonzero());
            assert!(std::fs::read_to_string(maps).expect("it runs").contains(&path));
            assert_eq!(connection.ask(&load), b"+OK\r\n");
        }
    }
}

#[test]
fn keys_and_policies_of_no_use_keep_the_module_from_loading() {
    let files = Files::new("wrong");
    let (servers, client) = (files.servers(), files.client(3).display().to_string());
    let access = files.write("access", "tailcut-access 1\nallow everybody *\n");
    let program = &programs()[0];
    let check = |words: &str, text: &str| {
        let words = format!("{LISTEN} {words}");
        let started = RedisServer::try_with_module(program, &words, &[]);
        let log = started.err().expect("it does not start");
        assert!(log.contains(text), "{words}: {log}");
    };
    check(&format!("seal {client}"), "these are a client's keys, with which nobody can serve");
    check(&format!("seal {access}"), "others may read the keys in");
    check("seal missing", "seal missing: cannot read the keys from missing");
    let secured = format!("seal {servers} access {access}");
    check(&secured, "line 2 of the policy: `everybody` names no client");
    let right = files.write("right", "tailcut-access 1\nallow 3 *\n");
    check(&format!("access {right}"), "give the server keys too");
}

/// Files of a group's keys and of policies, which go when this is dropped.
struct Files {
    directory: PathBuf,
    group: Keys,
}

impl Files {
    fn new(name: &str) -> Self {
        let name = format!("tailcut-redis-{name}-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir(&directory).expect("a directory");
        let now = UNIX_EPOCH.elapsed().expect("after 1970");
        let from_ms = now.as_millis() as u64 - 60_000;
        let epochs = vec![file::new_key(1, from_ms).expect("random numbers")];
        let group = Keys {
            role: Role::Server,
            group: "test".into(),
            cipher: Cipher::Aes128Gcm,
            reset: None,
            epochs,
        };
        file::create(&directory.join("servers"), &group).expect("a file");
        Self { directory, group }
    }

    fn servers(&self) -> String {
        self.directory.join("servers").display().to_string()
    }

    fn client(&self, number: u32) -> PathBuf {
        let path = self.directory.join(number.to_string());
        if !Path::exists(&path) {
            let keys = self.group.for_role(Role::Client(number)).expect("a server's keys");
            file::create(&path, &keys).expect("a file");
        }
        path
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path = self.directory.join(name);
        std::fs::write(&path, text).expect("a file");
        path.display().to_string()
    }

    /// A client with the keys of this number.
    fn connect(&self, server: &RedisServer, number: u32) -> Client {
        let keys = KeySource::open(self.client(number)).expect("keys");
        let config = Config { message_len_max: 9 << 20, ..Config::default() };
        let builder = ClientBuilder::new().timeout(Duration::from_secs(20)).config(config);
        builder.seal(keys).connect(server.address()).expect("a socket")
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        // What is left is in the directory for such files.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
