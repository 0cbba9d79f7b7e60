//! Text that fits: measured in columns, cut in the middle, without what could move a cursor.

use swath_model::SourceName;

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use super::look::Look;

/// `text` with every character that is not for showing replaced: control characters (among them
/// the escape that starts a sequence), marks that change the direction of writing, and where the
/// place shows only ASCII, whatever is not.
pub(super) fn safe(text: &str, look: Look) -> String {
    text.chars()
        .map(|c| match c {
            c if c.is_control() || is_invisible(c) => look.either('\u{fffd}', '?'),
            c if !look.unicode && !c.is_ascii() => '?',
            c => c,
        })
        .collect()
}

fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// Columns that `text` takes; it must not hold escape sequences.
pub(super) fn width(text: &str) -> usize {
    text.width()
}

/// Columns of `text` with escape sequences left out of the count.
pub(super) fn width_painted(text: &str) -> usize {
    let mut columns = 0;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c == '\x1b' {
            // The only sequences written here end with a letter.
            for c in chars.by_ref() {
                if c.is_ascii_alphabetic() {
                    break;
                }
            }
        } else {
            columns += c.width().unwrap_or(0);
        }
    }
    columns
}

/// Exactly `columns` wide: filled with spaces on the right, or cut at the end.
pub(super) fn left(text: &str, columns: usize, look: Look) -> String {
    let text = cut_end(text, columns, look);
    let fill = columns.saturating_sub(width(&text));
    format!("{text}{}", " ".repeat(fill))
}

/// Exactly `columns` wide where it fits, filled with spaces on the left.
pub(super) fn right(text: &str, columns: usize) -> String {
    format!("{}{text}", " ".repeat(columns.saturating_sub(width(text))))
}

/// At most `columns` wide, the end cut off.
pub(super) fn cut_end(text: &str, columns: usize, look: Look) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let dots = look.either("…", "...");
    if columns <= width(dots) {
        return head(text, columns).to_owned();
    }
    format!("{}{dots}", head(text, columns - width(dots)))
}

/// At most `columns` wide, the middle cut out.
pub(super) fn cut_middle(text: &str, columns: usize, look: Look) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let dots = look.either("…", "...");
    let room = columns.saturating_sub(width(dots));
    if room < 2 {
        return head(text, columns).to_owned();
    }
    let start = head(text, room.div_ceil(2));
    format!("{start}{dots}{}", tail(text, room - width(start)))
}

/// A source's name without its scheme, at most `columns` wide: of its address as
/// [`cut_address`] leaves it, and the relays to it.
pub(super) fn cut_name(name: &SourceName, columns: usize, look: Look) -> String {
    let address = safe(name.bare_address(), look);
    if !name.is_relayed() {
        return cut_address(&address, columns, look);
    }
    let relays: Vec<String> = name.relays.iter().map(|relay| safe(relay, look)).collect();
    let relays: Vec<&str> = relays.iter().map(|relay| without_port(relay)).collect();
    cut_route(&address, &relays, columns, look)
}

/// How wide a source's name is where nothing is cut.
pub(super) fn width_of_name(name: &SourceName) -> usize {
    let bare = SourceName { address: name.bare_address().to_owned(), relays: name.relays.clone() };
    width(&bare.to_string())
}

/// An address at most `columns` wide: its host whole where possible, then the end of its path, which
/// is what tells replicas and files apart.
fn cut_address(text: &str, columns: usize, look: Look) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let dots = look.either("/…", "/...");
    let host = text.split('/').next().unwrap_or(text);
    let last = text.rsplit('/').next().unwrap_or("");
    let used = width(host) + width(dots);
    if used + 4 > columns || host.len() == text.len() {
        return cut_middle(host, columns, look);
    }
    let room = columns - used;
    let end = if width(last) < room { format!("/{last}") } else { tail(last, room).to_owned() };
    format!("{host}{dots}{end}")
}

/// Returns what a row is called. Rows of routes are not called sources: a user who named one source
/// would look for the second.
pub(super) fn kind(name: &SourceName, is_staging: bool) -> &'static str {
    match name.is_relayed() {
        _ if is_staging => "depot",
        true => "route",
        false => "source",
    }
}

/// Returns a route at most `columns` wide: drops the file's name first, then relays in the middle. It
/// keeps the first relay, the nearest to this machine, and the last, the nearest to the source.
fn cut_route(replica: &str, relays: &[&str], columns: usize, look: Look) -> String {
    let least = width(replica.split('/').next().unwrap_or(replica)).min(HOST_LEAST_COLUMNS);
    let cut = |relays: &[&str]| {
        let relays = format!(" by {}", relays.join(", "));
        let room = columns.checked_sub(width(&relays)).filter(|&room| room >= least)?;
        Some(cut_address(replica, room, look) + &relays)
    };
    let dots = look.either("…", "...");
    let shorter = |kept: usize| match (&relays[..kept], relays.last()) {
        (first, Some(last)) => cut(&[first, &[dots, last]].concat()),
        (first, None) => cut(first),
    };
    let first = relays.first().copied().unwrap_or_default();
    cut(relays)
        .or_else(|| (1..relays.len().saturating_sub(1)).rev().find_map(shorter))
        .or_else(|| (relays.len() > 1).then(|| cut(&[first, dots]))?)
        .unwrap_or_else(|| {
            cut_middle(&format!("{replica} by {}", relays.join(", ")), columns, look)
        })
}

/// A relay's site without a port that says nothing: that of relays, and those of HTTP.
fn without_port(site: &str) -> &str {
    let port = [":8471", ":443", ":80"].into_iter().find_map(|port| site.strip_suffix(port));
    port.unwrap_or(site)
}

/// Less of a host says nothing.
const HOST_LEAST_COLUMNS: usize = 8;

/// `text` with its longer lines broken between words, so that none reaches the last of `columns`.
pub(super) fn wrapped(text: &str, columns: usize) -> String {
    let usable = columns.saturating_sub(1).max(1);
    let mut out = String::new();
    for line in text.lines() {
        if width_painted(line) <= usable {
            out.push_str(line);
            out.push('\n');
            continue;
        }
        let mut used = 0;
        for word in line.split_inclusive(' ') {
            let bare = width_painted(word.trim_end());
            if used > 0 && used + bare > usable {
                out.truncate(out.trim_end_matches(' ').len());
                out.push('\n');
                used = 0;
            }
            out.push_str(word);
            used += width_painted(word);
        }
        out.push('\n');
    }
    out
}

/// At most `columns` wide, escape sequences kept and not counted.
pub(super) fn cut_painted(text: &str, columns: usize) -> String {
    let mut out = String::new();
    let (mut used, mut escape) = (0, false);
    for c in text.chars() {
        if c == '\x1b' || escape {
            escape = c == '\x1b' || !c.is_ascii_alphabetic();
            out.push(c);
            continue;
        }
        used += c.width().unwrap_or(0);
        if used <= columns {
            out.push(c);
        }
    }
    out
}

/// The longest start that is at most `columns` wide.
fn head(text: &str, columns: usize) -> &str {
    let mut used = 0;
    for (at, c) in text.char_indices() {
        used += c.width().unwrap_or(0);
        if used > columns {
            return &text[..at];
        }
    }
    text
}

/// The longest end that is at most `columns` wide.
fn tail(text: &str, columns: usize) -> &str {
    let mut used = 0;
    for (at, c) in text.char_indices().rev() {
        used += c.width().unwrap_or(0);
        if used > columns {
            return &text[at + c.len_utf8()..];
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASCII: Look = Look { unicode: false, ..Look::PLAIN };

    #[test]
    fn nothing_from_outside_moves_the_cursor() {
        assert_eq!(
            safe("a\x1b[2Jb\r\n\u{202e}c\u{9b}", Look::PLAIN),
            "a\u{fffd}[2Jb\u{fffd}\u{fffd}\u{fffd}c\u{fffd}"
        );
        assert_eq!(safe("é\x07", ASCII), "??");
    }

    #[test]
    fn widths_count_columns() {
        assert_eq!(width("日本"), 4);
        assert_eq!(width_painted("\x1b[31mbad\x1b[0m 日"), 6);
        assert_eq!(left("日本語", 5, Look::PLAIN), "日本…");
        assert_eq!(left("ab", 4, Look::PLAIN), "ab  ");
        assert_eq!(right("ab", 4), "  ab");
    }

    #[test]
    fn long_texts_are_cut() {
        assert_eq!(cut_end("404 Not Found", 8, Look::PLAIN), "404 Not…");
        assert_eq!(cut_end("404 Not Found", 8, ASCII), "404 N...");
        assert_eq!(cut_middle("abcdefghij", 7, Look::PLAIN), "abc…hij");
        assert_eq!(cut_middle("abcdefghij", 1, Look::PLAIN), "a");
        assert_eq!(cut_middle("日本語日本語", 7, Look::PLAIN), "日…本語");
    }

    #[test]
    fn ways_keep_the_relay_nearest_to_us() {
        // Of 'ornl/…er:8471, kansascity:8471' nobody knew by whom it came.
        let relays = ["denver:8471", "kansascity:443", "[::1]:80", "atlanta:9"];
        let way = SourceName::routed("http://ornl.example/run7.h5", relays);
        let cut = |columns| cut_name(&way, columns, Look::PLAIN);
        for (columns, wanted) in [
            (90, "ornl.example/run7.h5 by denver, kansascity, [::1], atlanta:9"),
            (58, "ornl.example/…7.h5 by denver, kansascity, [::1], atlanta:9"),
            (54, "ornl.example by denver, kansascity, [::1], atlanta:9"),
            (50, "ornl.…mple by denver, kansascity, [::1], atlanta:9"),
            (46, "ornl.…mple by denver, kansascity, …, atlanta:9"),
            (34, "ornl.…mple by denver, …, atlanta:9"),
            (24, "ornl.…ample by denver, …"),
            (14, "ornl.ex…anta:9"),
        ] {
            let cut = cut(columns);
            assert!(width(&cut) <= columns, "{columns}: {cut}");
            assert_eq!(cut, wanted, "{columns}");
        }
        let one = SourceName::routed("https://ornl.example/run7.h5", ["denver:8471"]);
        let one = cut_name(&one, 29, Look::PLAIN);
        assert_eq!(one, "ornl.example/…n7.h5 by denver");
    }

    #[test]
    fn addresses_keep_host_and_file() {
        let address = "https://mirror-a.example.org/pub/data/release-7/big-file.h5";
        let name = SourceName::direct(address);
        let cut = |columns| cut_name(&name, columns, Look::PLAIN);
        assert_eq!(cut(60), "mirror-a.example.org/pub/data/release-7/big-file.h5");
        assert_eq!(cut(36), "mirror-a.example.org/…/big-file.h5");
        assert_eq!(cut(30), "mirror-a.example.org/…-file.h5");
        assert_eq!(cut(24), "mirror-a.example.org");
        assert_eq!(cut(12), "mirror…e.org");
        assert_eq!(cut_name(&name, 36, ASCII), "mirror-a.example.org/.../big-file.h5");
    }
}
