//! Columns that fit a width by wrapping, and paragraphs.

/// A colour of the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Paint {
    Green,
    Red,
    Yellow,
    Grey,
    Bold,
}

impl Paint {
    /// `text` in this colour, or as it is.
    pub(crate) fn over(self, text: &str, colour: bool) -> String {
        if !colour || text.is_empty() {
            return text.to_owned();
        }
        let code = match self {
            Paint::Green => "32",
            Paint::Red => "31",
            Paint::Yellow => "33",
            Paint::Grey => "90",
            Paint::Bold => "1",
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }
}

/// One column.
pub(crate) struct Column {
    pub(crate) title: &'static str,
    pub(crate) right: bool,
    /// Characters after which its texts may be broken.
    pub(crate) breaks: &'static str,
    /// Which column gives way first when the width is short: the greatest.
    pub(crate) gives_way: u8,
}

/// One cell of a table.
pub(crate) struct Field {
    pub(crate) text: String,
    pub(crate) paint: Option<Paint>,
}

/// Between two columns.
const GAP: usize = 2;
/// Before a column of numbers where the width is short.
const SHORT_GAP: usize = 1;

/// The table in at most `width` characters a line, or `None` if that cannot be
/// had by wrapping.
pub(crate) fn lay_out(
    columns: &[Column],
    rows: &[Vec<Field>],
    width: usize,
    colour: bool,
) -> Option<String> {
    let (widths, gaps) = fit(columns, rows, width)?;
    let titles: Vec<Field> = columns
        .iter()
        .map(|column| Field {
            text: column.title.to_owned(),
            paint: Some(Paint::Bold),
        })
        .collect();
    let mut out = String::new();
    for row in std::iter::once(&titles).chain(rows) {
        let wrapped: Vec<Vec<String>> = columns
            .iter()
            .zip(row)
            .zip(&widths)
            .map(|((column, field), width)| wrap(&field.text, *width, column.breaks))
            .collect();
        let height = wrapped.iter().map(Vec::len).max().unwrap_or(0);
        for line in 0..height {
            let mut text = String::new();
            let mut pending = 0;
            for (place, column) in columns.iter().enumerate() {
                let part = wrapped[place].get(line).map_or("", String::as_str);
                pending += gaps[place];
                let pad = widths[place].saturating_sub(part.chars().count());
                if column.right {
                    pending += pad;
                }
                if !part.is_empty() {
                    text.push_str(&" ".repeat(pending));
                    pending = 0;
                    let paint = row[place].paint;
                    text.push_str(
                        &paint.map_or_else(|| part.to_owned(), |paint| paint.over(part, colour)),
                    );
                }
                pending += if column.right { 0 } else { pad };
            }
            out.push_str(&text);
            out.push('\n');
        }
    }
    Some(out)
}

/// Widths, and the gap before each column: natural widths, then shorter gaps,
/// then the narrowest that wrapping allows, one column after the other, no
/// further than needed.
fn fit(columns: &[Column], rows: &[Vec<Field>], width: usize) -> Option<(Vec<usize>, Vec<usize>)> {
    let texts = |place: usize| {
        std::iter::once(columns[place].title).chain(
            rows.iter()
                .filter_map(move |row| row.get(place))
                .map(|field| field.text.as_str()),
        )
    };
    let mut widths: Vec<usize> = (0..columns.len())
        .map(|place| {
            texts(place)
                .map(|text| text.chars().count())
                .max()
                .unwrap_or(0)
        })
        .collect();
    let gaps_of = |before_numbers: usize| -> Vec<usize> {
        columns
            .iter()
            .enumerate()
            .map(|(place, column)| match (place, column.right) {
                (0, _) => 0,
                (_, true) => before_numbers,
                (_, false) => GAP,
            })
            .collect()
    };
    let total = |widths: &[usize], gaps: &[usize]| -> usize {
        widths.iter().sum::<usize>() + gaps.iter().sum::<usize>()
    };
    let wide = gaps_of(GAP);
    if total(&widths, &wide) <= width {
        return Some((widths, wide));
    }
    let gaps = gaps_of(SHORT_GAP);
    let mut order: Vec<usize> = (0..columns.len()).collect();
    order.sort_by_key(|place| std::cmp::Reverse(columns[*place].gives_way));
    for place in order {
        let excess = total(&widths, &gaps).saturating_sub(width);
        if excess == 0 {
            break;
        }
        let least = texts(place)
            .flat_map(|text| pieces(text, columns[place].breaks))
            .map(|piece| piece.trim().chars().count())
            .max()
            .unwrap_or(0);
        widths[place] = widths[place].saturating_sub(excess).max(least);
    }
    (total(&widths, &gaps) <= width).then_some((widths, gaps))
}

/// `text` cut after each of `breaks`.
fn pieces<'a>(text: &'a str, breaks: &'a str) -> impl Iterator<Item = &'a str> {
    text.split_inclusive(move |c| breaks.contains(c))
}

/// `text` in lines of at most `width` characters, broken only after `breaks`;
/// what cannot be broken stays whole, however long.
pub(crate) fn wrap(text: &str, width: usize, breaks: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for piece in pieces(text, breaks) {
        let together = line.chars().count() + piece.trim_end().chars().count();
        if !line.is_empty() && together > width {
            lines.push(line.trim().to_owned());
            line = String::new();
        }
        line.push_str(if line.is_empty() {
            piece.trim_start()
        } else {
            piece
        });
    }
    if !line.trim().is_empty() {
        lines.push(line.trim().to_owned());
    }
    lines
}

/// A paragraph with a painted first word, later lines indented by two.
pub(crate) fn paragraph(
    head: &str,
    paint: Option<Paint>,
    text: &str,
    width: usize,
    colour: bool,
) -> String {
    let whole = format!("{head} {text}");
    let lines = wrap(&whole, width.saturating_sub(2), " ");
    let mut out = String::new();
    for (place, line) in lines.iter().enumerate() {
        match (place, line.strip_prefix(head), paint) {
            (0, Some(rest), Some(paint)) => {
                out.push_str(&paint.over(head, colour));
                out.push_str(rest);
            }
            (0, _, _) => out.push_str(line),
            _ => {
                out.push_str("  ");
                out.push_str(line);
            }
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrapping_loses_no_word_and_keeps_long_ones_whole() {
        let text = "one two three averyveryverylongword four";
        let lines = wrap(text, 9, " ");
        assert_eq!(lines.join(" "), text);
        assert!(lines.contains(&"averyveryverylongword".to_owned()));
        assert!(
            lines
                .iter()
                .all(|line| line.len() <= 9 || !line.contains(' '))
        );
    }

    #[test]
    fn counts_break_between_kinds_only() {
        assert_eq!(
            wrap("lost 12, unmountable 3", 14, ","),
            ["lost 12,", "unmountable 3"]
        );
    }
}
