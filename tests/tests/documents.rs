//! README, the guides and SECURITY.md: size, links, the figures of README's comparison, and the tests of limits.
#![forbid(unsafe_code)]

use std::fs;
use std::path::{Path, PathBuf};

/// Maximum size of README.md.
const README_BYTES_MAX: usize = 12_000;

const LINKED: [&str; 3] = ["README.md", "tests/README.md", ".github/CONTRIBUTING.md"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The targets of a document's links, `](target)`, outside code blocks.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let prose = text.split("```").step_by(2);
    prose.flat_map(|part| part.split("](").skip(1)).filter_map(|rest| rest.split(')').next())
}

#[test]
fn readme_is_at_most_twelve_kilobytes() {
    let length = read("README.md").len();
    assert!(length <= README_BYTES_MAX, "{length} bytes");
}

#[test]
fn relative_links_have_targets() {
    let mut missing = Vec::new();
    for document in LINKED {
        let text = read(document);
        let folder = root().join(document).parent().map(Path::to_path_buf).unwrap_or_default();
        let relative = links(&text).filter(|link| !link.contains("://"));
        for link in relative {
            let path = link.split('#').next().unwrap_or_default();
            if !path.is_empty() && !folder.join(path).exists() {
                missing.push(format!("{document}: {link}"));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

/// Each row of a table of limits names tests: a file, and a function in it.
#[test]
fn limits_of_the_security_document_are_held_by_tests() {
    let text = read(".github/SECURITY.md");
    let tables = text.split("| resource | limit | where | tests |\n").skip(1);
    let rows = tables.flat_map(|rest| rest.lines().skip(1).take_while(|line| line.starts_with("| ")));
    let mut rows_count = 0;
    for row in rows {
        rows_count += 1;
        let tests = row.trim_end_matches(" |").rsplit(" | ").next().unwrap_or_default();
        for named in tests.split(", ") {
            let named = named.trim_matches('`');
            let (file, test) = named.split_once("::").unwrap_or_else(|| panic!("{row}: no test"));
            // A test, or a case that a runner of its own names.
            let text = read(file);
            let is_there = text.split("#[test]").skip(1).any(|rest| {
                let line =
                    rest.lines().map(str::trim).find(|line| line.starts_with("fn ") || line.starts_with("async fn "));
                line.is_some_and(|line| line.contains(&format!("fn {test}(")))
            }) || text.contains(&format!(".case(\"{test}\""));
            assert!(is_there, "{file} has no test {test}: {row}");
        }
    }
    assert!(rows_count > 30, "only {rows_count} rows were found");
    assert_eq!(text.matches("| resource |").count(), 2, "a table without tests");
}

/// The numbers in a text, without separators of thousands, each with its number of decimals.
fn numbers(text: &str) -> Vec<(f64, usize)> {
    let is_part = |byte: char| byte.is_ascii_digit() || byte == '.' || byte == ',';
    let words = text.split(|byte| !is_part(byte)).map(|word| word.trim_matches(['.', ',']).replace(',', ""));
    words
        .filter_map(|word| Some((word.parse().ok()?, word.split_once('.').map_or(0, |(_, decimals)| decimals.len()))))
        .collect()
}

/// Each figure of the table is one of a file in compare/results, in its unit or in thousands or
/// millions of it, rounded to the decimals of the table.
#[test]
fn figures_of_the_comparison_are_those_of_the_results() {
    let mut measured = Vec::new();
    for section in ["clients", "mux", "pools", "scale", "tail"] {
        let results = read(&format!("tests/compare/results/{section}.txt"));
        // Without the commit, and without the spreads of several runs.
        let (_, tables) = results.split_once("\n== ").expect("a section");
        let figures = tables.split_whitespace().filter(|word| !word.starts_with('±'));
        measured.extend(numbers(&figures.collect::<Vec<_>>().join(" ")));
    }
    let readme = read("README.md");
    let table = readme.split("## Comparison").nth(1).and_then(|rest| rest.split("Two figures").next());
    let rows = table.expect("the comparison").lines().filter(|line| line.starts_with("| ")).skip(1);
    let mut figures = 0;
    for row in rows {
        // The first cell has the name of the row.
        for cell in row.split('|').skip(2) {
            // Names of peers have digits.
            for (figure, decimals) in numbers(&cell.replace("bb8", "").replace("r2d2", "")) {
                let text = format!("{figure:.decimals$}");
                let is_measured = measured.iter().any(|(value, _)| {
                    [1.0, 1e3, 1e6].iter().any(|unit| format!("{:.decimals$}", value / unit) == text)
                });
                assert!(is_measured, "{text} is not in tests/compare/results: {row}");
                figures += 1;
            }
        }
    }
    assert!(figures > 50, "only {figures} figures were found");
}

/// The program of the guide `order_service`, without indentation.
fn order_service(module: &str) -> String {
    unindented(&read(&format!("runtime-smol/examples/order_service/{module}.rs")))
}

/// The lines of a text, each with its first and last blanks removed.
fn unindented(text: &str) -> String {
    text.lines().map(str::trim).fold(String::new(), |lines, line| lines + line + "\n")
}

/// The blocks of code of a document in a language.
fn blocks<'t>(text: &'t str, language: &str) -> Vec<&'t str> {
    let blocks = text.split("```").skip(1).step_by(2);
    blocks.filter_map(|block| block.strip_prefix(language)?.strip_prefix('\n')).collect()
}

/// The guide has lines of the program: both change together.
#[test]
fn pieces_of_the_order_service_are_lines_of_the_program() {
    let guide = read("core/client/src/guide/order_service.md");
    let program = ["orders", "main"].map(order_service).concat();
    let pieces = blocks(&guide, "ignore");
    assert!(pieces.len() >= 6, "{pieces:#?}");
    for piece in pieces {
        assert!(program.contains(&unindented(piece)), "these lines are not in the program:\n{piece}");
    }
}

#[test]
fn commands_of_the_order_service_are_those_of_the_program() {
    let guide = read("core/client/src/guide/order_service.md");
    let head = order_service("main").replace("//! ", "");
    let commands = blocks(&guide, "sh").concat();
    let commands: Vec<&str> = commands.lines().filter(|line| line.starts_with("curl ")).collect();
    assert!(commands.len() >= 5, "{commands:#?}");
    for command in commands.iter().chain([&"cargo run -p poolhouse-smol --example order_service"]) {
        assert!(head.contains(command), "main.rs does not have: {command}");
    }
}

/// All that the service does with the database fits on two screens.
#[test]
fn order_service_has_at_most_a_hundred_and_twenty_lines_besides_http() {
    let program = ["orders", "main"].map(order_service).concat();
    let lines = program.lines().filter(|line| !line.is_empty() && !line.starts_with("//"));
    assert!(lines.count() <= 120);
}
