//! Ids in a source file, and the functions that they belong to.

/// Whether a text is an id: `CMAP-16`, `P10`.
pub(super) fn is_id(text: &str) -> bool {
    let mut found = Vec::new();
    in_line(text, 0, &mut found);
    found.len() == 1 && found[0] == text
}

/// A function that an id belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Function {
    pub(super) name: String,
    /// Whether it has the attribute of a test, and therefore its own line in the log.
    pub(super) is_test: bool,
}

/// Returns the ids of a file, each with its function: for a comment before a function that
/// function, otherwise the enclosing one.
///
/// Ids in the documentation of a file, in constants outside of functions, and in JSON files have no
/// function. Ranges longer than `range_max` are skipped.
pub(super) fn of(text: &str, range_max: u32) -> Vec<(String, Option<Function>)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let mut ids = Vec::new();
        in_line(line, range_max, &mut ids);
        if ids.is_empty() {
            continue;
        }
        let function = function_of(&lines, at);
        found.extend(ids.into_iter().map(|id| (id, function.clone())));
    }
    found
}

fn function_of(lines: &[&str], at: usize) -> Option<Function> {
    let trimmed = lines[at].trim_start();
    let indent = |line: &str| line.len() - line.trim_start().len();
    let function = |at: usize| Some(Function { name: name_of(lines[at])?, is_test: is_test(&lines[..at]) });
    if trimmed.starts_with("//!") {
        return None;
    }
    if trimmed.starts_with("//") {
        // Skips further comments and attributes.
        let next = (at..lines.len()).find(|next| !is_aside(lines[*next]));
        if let Some(function) = next.and_then(function) {
            return Some(function);
        }
    }
    let mut depth = indent(lines[at]);
    for before in (0..at).rev().filter(|before| !lines[*before].trim().is_empty()) {
        if indent(lines[before]) < depth {
            if let Some(function) = function(before) {
                return Some(function);
            }
            // A line inside an item does not belong to the function before that item.
            if is_item(lines[before]) {
                depth = indent(lines[before]);
            }
        }
    }
    None
}

/// Whether a line is a comment or an attribute.
fn is_aside(line: &str) -> bool {
    line.trim_start().starts_with("//") || line.trim_start().starts_with("#[")
}

/// Whether the comments and attributes at the end of these lines mark a test.
fn is_test(before: &[&str]) -> bool {
    before.iter().rev().take_while(|line| is_aside(line)).any(|line| line.trim() == "#[test]")
}

/// Whether a line begins an item other than a function.
fn is_item(line: &str) -> bool {
    let words = line.split_whitespace().skip_while(|word| word.starts_with("pub"));
    let first = words.map(|word| word.trim_end_matches('!')).next().unwrap_or("");
    ["const", "static", "struct", "enum", "impl", "trait", "mod", "macro_rules", "type"].contains(&first)
}

/// The name of the function that a line declares.
fn name_of(line: &str) -> Option<String> {
    let rest = &line[line.find("fn ").filter(|at| *at == 0 || line.as_bytes()[at - 1] == b' ')? + 3..];
    let end = rest.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_')?;
    (end > 0).then(|| rest[..end].to_owned())
}

/// Collects the ids of a line, including those of ranges.
fn in_line(line: &str, range_max: u32, found: &mut Vec<String>) {
    let bytes = line.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let starts = at == 0 || !bytes[at - 1].is_ascii_alphanumeric() && bytes[at - 1] != b'_';
        let Some((prefix, digits)) = starts.then(|| prefix_at(&line[at..])).flatten() else {
            at += 1;
            while !line.is_char_boundary(at) {
                at += 1;
            }
            continue;
        };
        let first: u32 = digits.parse().unwrap_or(0);
        let written =
            |number: u32| if prefix.len() > 1 { format!("{prefix}{number:02}") } else { format!("{prefix}{number}") };
        at += prefix.len() + digits.len();
        match range_end(&line[at..], prefix) {
            Some((last, length)) if last >= first => {
                if last - first < range_max {
                    found.extend((first..=last).map(written));
                }
                at += length;
            }
            _ => found.push(written(first)),
        }
    }
}

/// The prefix and the number of an id at the start of a text.
fn prefix_at(text: &str) -> Option<(&str, &str)> {
    let prefix =
        ["CMAP-", "MON-", "SDAM-", "LOG-", "P", "M", "S"].into_iter().find(|prefix| text.starts_with(prefix))?;
    let rest = &text[prefix.len()..];
    let end = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
    // P50 and P99 look like percentiles, but those are written in lower case.
    let is_number =
        (1..=3).contains(&end) && !rest[end..].starts_with(|letter: char| letter.is_alphanumeric() || letter == '_');
    is_number.then(|| (&text[..prefix.len()], &rest[..end]))
}

/// The last number of a range that continues at the start of a text, and the length of that part:
/// `..40`, `-S18`, ` to SDAM-19`.
fn range_end(text: &str, prefix: &str) -> Option<(u32, usize)> {
    for between in ["..=", "..", " to ", "-"] {
        let Some(rest) = text.strip_prefix(between) else { continue };
        let named = rest.strip_prefix(prefix);
        if named.is_none() && !between.starts_with("..") {
            continue;
        }
        let rest = named.unwrap_or(rest);
        let end = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
        if let Ok(number) = rest[..end].parse() {
            return Some((number, text.len() - rest.len() + end));
        }
    }
    None
}
