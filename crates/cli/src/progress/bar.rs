//! Bars made of characters.

use super::look::{Look, Tone};

/// Returns a thin line of `columns` with `part` (0 to 1) highlighted.
pub(super) fn line(part: f64, columns: usize, look: Look) -> String {
    let part = clean(part);
    if look.unicode {
        // Half characters double the resolution.
        let halves = (part * (2 * columns) as f64) as usize;
        let mut strong = "━".repeat(halves / 2);
        let mut rest = columns - halves / 2;
        if halves % 2 == 1 {
            strong.push('╸');
            rest -= 1;
        }
        // Without colour the rest must look different by itself.
        let weak = if look.colour { "━" } else { "─" };
        format!("{}{}", look.tone(Tone::Good, &strong), look.tone(Tone::Dim, &weak.repeat(rest)))
    } else {
        let inner = columns.saturating_sub(2);
        let full = (part * inner as f64) as usize;
        format!(
            "[{}{}]",
            look.tone(Tone::Good, &"#".repeat(full)),
            look.tone(Tone::Dim, &"-".repeat(inner - full))
        )
    }
}

/// Returns a small bar of `columns`, in eighths of a character.
pub(super) fn block(part: f64, columns: usize, look: Look) -> String {
    let part = clean(part);
    if look.unicode {
        let eighths = (part * (8 * columns) as f64).round() as usize;
        let eighths = if part > 0.0 { eighths.max(1) } else { 0 };
        let mut out = "█".repeat(eighths / 8);
        let mut used = eighths / 8;
        if eighths % 8 > 0 {
            out.push(['▏', '▎', '▍', '▌', '▋', '▊', '▉'][eighths % 8 - 1]);
            used += 1;
        }
        format!("{out}{}", " ".repeat(columns - used))
    } else {
        let full = (part * columns as f64).round() as usize;
        let full = if part > 0.0 { full.max(1) } else { 0 };
        format!("{}{}", "#".repeat(full), " ".repeat(columns - full))
    }
}

fn clean(part: f64) -> f64 {
    if part.is_finite() { part.clamp(0.0, 1.0) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_have_their_width_and_survive_nonsense() {
        assert_eq!(line(0.55, 10, Look::PLAIN), "━━━━━╸────");
        assert_eq!(line(1.0, 4, Look::PLAIN), "━━━━");
        assert_eq!(line(0.5, 10, Look { unicode: false, ..Look::PLAIN }), "[####----]");
        assert_eq!(block(0.5, 4, Look::PLAIN), "██  ");
        assert_eq!(block(0.001, 4, Look::PLAIN), "▏   ");
        assert_eq!(block(0.3, 4, Look { unicode: false, ..Look::PLAIN }), "#   ");
        for part in [f64::NAN, -1.0, 2.0, f64::INFINITY] {
            assert_eq!(super::super::text::width(&line(part, 7, Look::PLAIN)), 7);
            assert_eq!(super::super::text::width(&block(part, 7, Look::PLAIN)), 7);
        }
        assert_eq!(line(0.5, 0, Look::PLAIN), "");
    }
}
