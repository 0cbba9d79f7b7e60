//! Words to standard output and standard error. Nothing here panics: where a reader has gone away
//! or a device is full, the words are lost, and the program ends with the code that it has earned.

use std::io::{self, Write as _};

use crate::exit::{Exit, fail};
use crate::progress::look::Look;

/// A line on standard error, without what a server may have put into it to move a cursor.
pub fn err(line: &str) {
    // There is nowhere left to complain to.
    let _ = writeln!(io::stderr(), "{}", Look::of_lines().safe_words(line));
}

/// All that a command prints, on standard output; `exit` is its end if that works. A reader that
/// had enough is no mistake, a full device is one.
pub fn out(bytes: &[u8], exit: Exit) -> Exit {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => exit,
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => exit,
        Err(error) => {
            fail(exit.max(Exit::Target), &format!("cannot write to standard output: {error}"))
        }
    }
}
