//! Typed services that are sealed: who calls, and who may call which method.

use tailcut::sealed::{Access, Cipher, EpochKey, HopKey, Keys, Role, Secret};
use tailcut::{ClientBuilder, ServerBuilder};
use tailcut_services::{Channel, Client, Code};

use crate::calls::{PATIENCE, Serving, with_opened, word};
use crate::trial::trial_client::TrialClient;

/// A group's keys, whose epoch has begun a minute ago.
fn group() -> Keys {
    let now = std::time::UNIX_EPOCH.elapsed().expect("after 1970");
    let from_ms = now.as_millis() as u64 - 60_000;
    let secret = Secret::new([7; 32]);
    let epochs = vec![EpochKey { epoch: 1, from_ms, secret, hop: HopKey::default() }];
    Keys { role: Role::Server, group: "test".into(), cipher: Cipher::Aes128Gcm, epochs }
}

#[test]
fn a_policy_says_which_methods_a_client_may_call() {
    let keys = group();
    let policy = "tailcut-access 1\nallow 3,4 /trial.Trial/Describe\nallow 4 /trial.Trial/Echo\n";
    let access: Access = policy.parse().expect("a policy");
    let opening = ServerBuilder::new().seal(keys.clone()).access(access);
    for serving in [Serving::Here, Serving::Workers, Serving::Tasks] {
        let metrics = with_opened(&opening, serving, |address, runtime| {
            for number in [3, 4] {
                let keys = keys.for_role(Role::Client(number)).expect("a server's keys");
                let builder = ClientBuilder::new().timeout(PATIENCE).seal(keys);
                let blocking = Client::new(builder.connect(address).expect("a client"));
                let blocking = TrialClient::new(blocking);
                let told = blocking.describe(()).expect("a reply").into_inner();
                assert_eq!(told.identity, Some(number), "{serving:?}");
                let channel = Channel::new(builder.connect_async(address).expect("a client"));
                let channel = TrialClient::new(channel);
                for echoed in [
                    blocking.echo(word("hello")),
                    runtime.block_on(async { channel.echo(word("hello")).await }),
                ] {
                    match echoed {
                        Ok(reply) => assert_eq!((number, reply.into_inner()), (4, word("hello"))),
                        Err(status) => {
                            assert_eq!((number, status.code()), (3, Code::PermissionDenied));
                            let text = "client 3 may not call /trial.Trial/Echo";
                            assert!(status.message().contains(text), "{status}");
                        }
                    }
                }
            }
        });
        assert_eq!((metrics.replied, metrics.failed), (4, 0), "{serving:?}");
    }
}
