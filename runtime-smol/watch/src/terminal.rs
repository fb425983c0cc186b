//! The terminal: its mode, its size and its keys.

use core::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, Once, PoisonError};

use rustix::termios::{self, LocalModes, OptionalActions, SpecialCodeIndex, Termios};

use crate::screen::{Line, Style};

/// The special code of a key without effect: `_POSIX_VDISABLE`.
const DISABLED: u8 = if cfg!(target_os = "linux") { 0 } else { 0xff };

/// The mode before [`Terminal::enter`], until it is restored.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// The terminal in the mode for a screen: keys arrive at once and are not echoed, and the screen is
/// another one. Dropping it restores mode and screen, as a panic of any thread does, which also
/// ends the process.
#[derive(Debug)]
pub(crate) struct Terminal(());

impl Terminal {
    /// Returns whether a screen can be drawn and keys can be read.
    pub(crate) fn is_available() -> bool {
        io::stdin().is_terminal()
            && io::stdout().is_terminal()
            && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
    }

    /// # Errors
    /// Those of the terminal.
    pub(crate) fn enter() -> io::Result<Self> {
        static HOOK: Once = Once::new();
        let before = termios::tcgetattr(io::stdin())?;
        let mut mode = before.clone();
        mode.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
        mode.special_codes[SpecialCodeIndex::VMIN] = 1;
        mode.special_codes[SpecialCodeIndex::VTIME] = 0;
        // A process that these keys stop or end would leave its screen behind.
        mode.special_codes[SpecialCodeIndex::VSUSP] = DISABLED;
        mode.special_codes[SpecialCodeIndex::VQUIT] = DISABLED;
        *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = Some(before);
        HOOK.call_once(|| {
            let hook = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                let restored = restore();
                hook(panic);
                if restored {
                    std::process::exit(101);
                }
            }));
        });
        let entered = Self(());
        termios::tcsetattr(io::stdin(), OptionalActions::Flush, &mode)?;
        print("\x1b[?1049h\x1b[?25l")?;
        Ok(entered)
    }

    /// Returns columns and lines.
    pub(crate) fn size(&self) -> (usize, usize) {
        let size = termios::tcgetwinsize(io::stdout()).ok();
        let size = size.filter(|size| size.ws_col > 0 && size.ws_row > 0);
        size.map_or((80, 24), |size| (size.ws_col.into(), size.ws_row.into()))
    }

    /// Replaces what is on the screen. No-op after a panic has restored the terminal, whose message
    /// would be overwritten.
    ///
    /// # Errors
    /// Those of the output.
    pub(crate) fn draw(&self, lines: &[Line]) -> io::Result<()> {
        let text = escaped(lines);
        let before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner);
        if before.is_some() { print(&text) } else { Ok(()) }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        restore();
    }
}

/// Restores screen and mode. Returns whether they had been changed.
fn restore() -> bool {
    // Locked until the end, so that no frame is drawn after the screen is restored.
    let mut kept = BEFORE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(before) = kept.take() else { return false };
    // A terminal that is gone has no mode to restore.
    let _ = print("\x1b[?25h\x1b[?1049l");
    let _ = termios::tcsetattr(io::stdin(), OptionalActions::Now, &before);
    true
}

fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Returns the lines with the escape sequences that draw them over the previous ones.
pub(crate) fn escaped(lines: &[Line]) -> String {
    let mut out = String::from("\x1b[H");
    for (index, line) in lines.iter().enumerate() {
        if index > 0 {
            out.push_str("\r\n");
        }
        for (style, text) in &line.0 {
            // Writing to a string does not fail.
            let _ = write!(out, "\x1b[{}m{text}\x1b[0m", code(*style));
        }
        out.push_str("\x1b[K");
    }
    out.push_str("\x1b[J");
    out
}

/// The parameters of the sequence "select graphic rendition".
const fn code(style: Style) -> &'static str {
    match style {
        Style::Plain => "0",
        Style::Dim => "2",
        Style::Bold => "1",
        Style::Key => "7",
        Style::Good => "32",
        Style::Busy => "33",
        Style::Bad => "31",
        Style::Accent => "36",
    }
}

#[cfg(test)]
mod tests;
