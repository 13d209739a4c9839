//! Debian's headless Chromium, driven by the DevTools protocol over a pipe: one JSON object a
//! message, a zero byte behind each.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;
use serde_json::{Value, json};

/// A browser with one page, killed when dropped.
pub(super) struct Chromium {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    directory: PathBuf,
    requests: u64,
    target: String,
    session: Option<String>,
}

impl Chromium {
    /// Starts it. None where it is not installed.
    pub(super) fn start() -> Option<Self> {
        if !Command::new("sh")
            .args(["-c", &format!("command -v {PROGRAM}")])
            .output()
            .is_ok_and(|found| found.status.success())
        {
            println!("SKIPPED: {PROGRAM} is missing (Debian: {PROGRAM})");
            return None;
        }
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let directory = std::env::temp_dir().join(format!(
            "tailcut-{}-chromium-{}",
            std::process::id(),
            STARTED.fetch_add(1, Ordering::Relaxed)
        ));
        let mut child = Command::new("sh")
            .args(["-c", SCRIPT, PROGRAM])
            .arg(format!("--user-data-dir={}", directory.display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("a shell");
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut browser = Self {
            child,
            input,
            output,
            directory,
            requests: 0,
            target: String::new(),
            session: None,
        };
        let page = browser.ask("Target.createTarget", json!({ "url": "about:blank" }));
        browser.target = text(&page["targetId"]);
        let attached = json!({ "targetId": browser.target, "flatten": true });
        let attached = browser.ask("Target.attachToTarget", attached);
        browser.session = Some(text(&attached["sessionId"]));
        Some(browser)
    }

    /// Shows a page in a window of a width, in CSS pixels.
    pub(super) fn show(&mut self, page: &str, width: u32) {
        let size =
            json!({ "width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 600 });
        self.ask("Emulation.setDeviceMetricsOverride", size);
        // The only frame has the name of its target.
        let content = json!({ "frameId": self.target, "html": page });
        self.ask("Page.setDocumentContent", content);
    }

    /// The value of an expression in the page.
    pub(super) fn evaluate(&mut self, expression: &str) -> Value {
        let asked = json!({ "expression": expression, "returnByValue": true });
        let answer = self.ask("Runtime.evaluate", asked);
        assert!(answer.get("exceptionDetails").is_none(), "{answer:#}");
        answer["result"]["value"].clone()
    }

    /// Has the page look as on paper.
    pub(super) fn print_media(&mut self) {
        self.ask("Emulation.setEmulatedMedia", json!({ "media": "print" }));
    }

    /// The page as it is printed.
    pub(super) fn pdf(&mut self) -> Vec<u8> {
        let printed = self.ask("Page.printToPDF", json!({ "printBackground": true }));
        BASE64.decode(text(&printed["data"])).expect("it is base64")
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.requests += 1;
        let mut request = json!({ "id": self.requests, "method": method, "params": params });
        if let Some(session) = &self.session {
            request["sessionId"] = json!(session);
        }
        let input = self.input.as_mut().expect("it is open until the end");
        write!(input, "{request}\0").expect("the browser reads");
        loop {
            let mut message = Vec::new();
            self.output.read_until(0, &mut message).expect("the browser writes");
            assert_eq!(message.pop(), Some(0), "the browser ended before it answered {method}");
            let message: Value = serde_json::from_slice(&message).expect("it is JSON");
            // Others are events.
            if message["id"] == self.requests {
                assert!(message.get("error").is_none(), "{method}: {message}");
                return message["result"].clone();
            }
        }
    }
}

impl Drop for Chromium {
    fn drop(&mut self) {
        // It ends by itself where nobody is at the other end of its pipe.
        self.input = None;
        // What cannot be removed is left.
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn text(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}

const PROGRAM: &str = "chromium-headless-shell";

/// The pipe is expected at descriptors 3 and 4. A browser that hangs is ended after a minute, so
/// that the test ends too. No sandbox: root has none, and the pages are our own.
const SCRIPT: &str = "exec timeout --kill-after=5 60 \"$0\" --headless --no-sandbox \
     --disable-gpu --disable-dev-shm-usage --remote-debugging-pipe \"$@\" 3<&0 4>&1 </dev/null >/dev/null";
