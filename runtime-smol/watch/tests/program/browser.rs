//! A headless Chromium, driven by its DevTools protocol over pipes.

use serde_json::{Value, json};
use std::env;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use poolhouse_tests::tls::Folder;

/// The path of the browser, from `CHROMIUM` or found on the `PATH`.
pub(crate) fn available() -> Result<PathBuf, String> {
    if let Some(path) = env::var_os("CHROMIUM") {
        return Ok(path.into());
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path).map(|folder| folder.join("chromium")).find(|program| program.is_file());
    found.ok_or_else(|| {
        env::var("CHROMIUM_MISSING").unwrap_or_else(|_| "no chromium: see tests/scripts/chromium".to_owned())
    })
}

/// A browser with one page. Dropping it ends it.
pub(crate) struct Browser {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    calls: u64,
    session: Option<String>,
    /// Its profile.
    _folder: Folder,
}

impl Browser {
    pub(crate) fn open(program: &Path, url: &str) -> Self {
        let folder = Folder::new();
        // It reads commands from descriptor 3 and writes replies to descriptor 4.
        let mut child = Command::new("sh")
            .args(["-c", "exec \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1", "sh"])
            .arg(program)
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--remote-debugging-pipe"])
            .arg(format!("--user-data-dir={}", folder.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut browser = Self { child, input, output, calls: 0, session: None, _folder: folder };
        let target = browser.call("Target.createTarget", &json!({ "url": "about:blank" }))["targetId"].clone();
        let attached = browser.call("Target.attachToTarget", &json!({ "targetId": target, "flatten": true }));
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        // It returns when scripts run in the new document.
        browser.call("Page.navigate", &json!({ "url": url }));
        browser
    }

    /// Returns the value of a JavaScript expression, of a promise when it is resolved.
    ///
    /// # Panics
    /// If the script throws.
    pub(crate) fn evaluate(&mut self, expression: &str) -> Value {
        let parameters = json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let reply = self.call("Runtime.evaluate", &parameters);
        assert!(reply.get("exceptionDetails").is_none(), "{reply}");
        reply["result"]["value"].clone()
    }

    fn call(&mut self, method: &str, parameters: &Value) -> Value {
        self.calls += 1;
        let mut message = json!({ "id": self.calls, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            message["sessionId"] = session.as_str().into();
        }
        self.input.write_all(format!("{message}\0").as_bytes()).unwrap();
        loop {
            let mut reply = Vec::new();
            self.output.read_until(0, &mut reply).unwrap();
            assert_eq!(reply.pop(), Some(0), "the browser has ended");
            let mut reply: Value = serde_json::from_slice(&reply).unwrap();
            // Other messages are events.
            if reply["id"] == self.calls {
                assert!(reply.get("error").is_none(), "{method}: {reply}");
                return reply["result"].take();
            }
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
