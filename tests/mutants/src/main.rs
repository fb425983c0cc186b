//! Writes all mutants that cargo-mutants lists into one copy of the sources, each behind a check
//! whether its number is active.
//!
//! `poolhouse-mutants LIST UNVIABLE ROOT COPY REGIONS`
//!
//! - LIST: the output of `cargo mutants --list --json`. The number of a mutant is its position in
//!   this list, from one.
//! - UNVIABLE: a list of numbers, possibly empty.
//! - ROOT, COPY: each file below ROOT that LIST names is written below COPY.
//! - REGIONS: receives the byte ranges of each mutant in those files.
//!
//! Standard output lists the numbers of the mutants that cannot be written this way, with the
//! reason.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;

use serde_json::{Value, json};
use syn::spanned::Spanned as _;
use syn::visit::{self, Visit};

/// A mutant of one file.
struct Mutant {
    id: u64,
    genre: String,
    replacement: String,
    span: Range<usize>,
}

/// A replacement of a byte range of the source.
struct Edit {
    at: Range<usize>,
    kind: Kind,
}

enum Kind {
    /// Before the statements of a function: returns of other values.
    Body(Vec<(u64, String)>),
    /// The same for a function that returns `impl Iterator`.
    Iterator(Vec<(u64, String)>),
    /// The end of such a function.
    End,
    /// An operator and its operands.
    Binary { left: Range<usize>, operator: Range<usize>, right: Range<usize>, others: Vec<(u64, String)> },
    /// An operator that can be removed.
    Unary { operator: Range<usize>, operand: Range<usize>, id: u64 },
    /// The guard of an arm: replaced by `true`, replaced by `false`, or the arm is removed.
    Guard { always: Option<u64>, never: Option<u64>, left_out: Option<u64> },
    /// An arm without a guard that can be removed.
    Arm(u64),
    /// The value of a field that can be replaced by that of the base.
    Field { prefix: String, base: String, id: u64 },
}

#[derive(Default)]
struct Finder {
    mutants: Vec<Mutant>,
    edits: Vec<Edit>,
    placed: BTreeSet<u64>,
    impossible: BTreeMap<u64, &'static str>,
    source: String,
}

impl Finder {
    fn at(&self, genre: &str, start: usize) -> Vec<(u64, String)> {
        let found = self.mutants.iter().filter(|mutant| mutant.genre == genre && mutant.span.start == start);
        found.map(|mutant| (mutant.id, mutant.replacement.clone())).collect()
    }

    fn push(&mut self, at: Range<usize>, ids: impl IntoIterator<Item = u64>, kind: Kind) {
        self.placed.extend(ids);
        self.edits.push(Edit { at, kind });
    }

    fn body(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let (range, Some(first)) = (block.span().byte_range(), block.stmts.first()) else { return };
        let found = self.at("FnValue", first.span().byte_range().start);
        if found.is_empty() {
            return;
        }
        let ids: Vec<_> = found.iter().map(|(id, _)| *id).collect();
        let (start, end) = (range.start + 1, range.end - 1);
        if matches!(&signature.output, syn::ReturnType::Type(_, of) if matches!(**of, syn::Type::ImplTrait(_))) {
            // No iterator type that these functions return implements `Default`.
            let (none, found): (Vec<_>, _) =
                found.into_iter().partition(|(_, value)| value.contains("Default::default()"));
            self.impossible.extend(none.iter().map(|(id, _)| (*id, "unviable: no default")));
            self.push(start..start, ids, Kind::Iterator(found));
            self.push(end..end, [], Kind::End);
        } else {
            self.push(start..start, ids, Kind::Body(found));
        }
    }
}

/// Whether a chain of conditions matches a pattern, outside of parentheses.
fn matches_pattern(expr: &syn::Expr) -> bool {
    match expr {
        syn::Expr::Let(_) => true,
        syn::Expr::Binary(binary) => matches_pattern(&binary.left) || matches_pattern(&binary.right),
        _ => false,
    }
}

impl<'ast> Visit<'ast> for Finder {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.body(&item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.body(&item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.body(&item.sig, block);
        }
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_expr_binary(&mut self, expr: &'ast syn::ExprBinary) {
        let operator = expr.op.span().byte_range();
        let others = self.at("BinaryOperator", operator.start);
        if !others.is_empty() {
            let ids: Vec<_> = others.iter().map(|(id, _)| *id).collect();
            let lazy = matches!(expr.op, syn::BinOp::And(_) | syn::BinOp::Or(_));
            if lazy && (matches_pattern(&expr.left) || matches_pattern(&expr.right)) {
                for id in ids {
                    self.impossible.insert(id, "unviable: a pattern among alternatives");
                }
            } else {
                let (left, right) = (expr.left.span().byte_range(), expr.right.span().byte_range());
                self.push(left.start..right.end, ids, Kind::Binary { left, operator, right, others });
            }
        }
        visit::visit_expr_binary(self, expr);
    }

    fn visit_expr_unary(&mut self, expr: &'ast syn::ExprUnary) {
        let operator = expr.op.span().byte_range();
        if let Some((id, _)) = self.at("UnaryOperator", operator.start).pop() {
            let operand = expr.expr.span().byte_range();
            self.push(operator.start..operand.end, [id], Kind::Unary { operator, operand, id });
        }
        visit::visit_expr_unary(self, expr);
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        let left_out = self.at("MatchArm", arm.pat.span().byte_range().start).pop().map(|(id, _)| id);
        if let Some((_, guard)) = &arm.guard {
            let range = guard.span().byte_range();
            let found = self.at("MatchArmGuard", range.start);
            let which = |value: &str| found.iter().find(|(_, other)| other == value).map(|(id, _)| *id);
            let (always, never) = (which("true"), which("false"));
            let ids: Vec<_> = [always, never, left_out].into_iter().flatten().collect();
            if !ids.is_empty() {
                if matches_pattern(guard) {
                    for id in ids {
                        self.impossible.insert(id, "a pattern in a guard");
                    }
                } else {
                    self.push(range, ids, Kind::Guard { always, never, left_out });
                }
            }
        } else if let Some(id) = left_out {
            let end = arm.pat.span().byte_range().end;
            self.push(end..end, [id], Kind::Arm(id));
        }
        visit::visit_arm(self, arm);
    }

    fn visit_expr_struct(&mut self, expr: &'ast syn::ExprStruct) {
        for field in &expr.fields {
            let found = self.at("StructField", field.span().byte_range().start).pop();
            if let (Some((id, _)), Some(base), syn::Member::Named(name)) = (found, &expr.rest, &field.member) {
                let mut text = self.source[base.span().byte_range()].to_owned();
                if text == "Default::default()" {
                    text = format!("<{}>::default()", &self.source[expr.path.span().byte_range()]);
                }
                let prefix = if field.colon_token.is_none() { format!("{name}: ") } else { String::new() };
                self.push(
                    field.expr.span().byte_range(),
                    [id],
                    Kind::Field { prefix, base: format!("({text}).{name}"), id },
                );
            }
        }
        visit::visit_expr_struct(self, expr);
    }
}

/// The output file, and the byte ranges of mutants in it.
struct Writer<'a> {
    source: &'a str,
    edits: Vec<Edit>,
    text: String,
    regions: Vec<(usize, usize, u64)>,
}

fn asked(id: u64) -> String {
    format!("crate::mutant::on({id})")
}

impl Writer<'_> {
    fn emit(&mut self, text: &str) {
        self.text.push_str(text);
    }

    fn region(&mut self, id: u64, write: impl FnOnce(&mut Self)) {
        let start = self.text.len();
        write(self);
        self.regions.push((start, self.text.len(), id));
    }

    /// Copies a range of the source and applies the edits within it. `without` is the edit being
    /// written, which may have the same range.
    fn copy(&mut self, range: Range<usize>, without: Option<usize>) {
        let mut from = range.start;
        while let Some(index) = self.next(from, &range, without) {
            let at = self.edits[index].at.clone();
            let source = self.source;
            self.emit(&source[from..at.start]);
            self.apply(index);
            from = at.end;
            if at.is_empty() {
                // No other edit starts at the byte of an insertion.
                self.emit(&source[at.start..=at.start]);
                from += 1;
            }
        }
        let source = self.source;
        self.emit(&source[from..range.end]);
    }

    /// Returns the next edit within the range; of edits with the same start, the widest.
    fn next(&self, from: usize, range: &Range<usize>, without: Option<usize>) -> Option<usize> {
        // Of two edits with the same range, such as a guard that is a comparison, the outer one was
        // found first.
        let inner =
            |index: usize, at: &Range<usize>| without.is_none_or(|outer| *at != self.edits[outer].at || index > outer);
        let found = self.edits.iter().enumerate();
        let found =
            found.filter(|(index, edit)| edit.at.start >= from && edit.at.end <= range.end && inner(*index, &edit.at));
        found.min_by_key(|(index, edit)| (edit.at.start, usize::MAX - edit.at.end, *index)).map(|(index, _)| index)
    }

    fn apply(&mut self, index: usize) {
        let source = self.source;
        let at = self.edits[index].at.clone();
        match &self.edits[index].kind {
            Kind::Body(others) => {
                for (id, value) in others.clone() {
                    self.region(id, |this| this.emit(&format!(" if {} {{ return {value}; }}", asked(id))));
                }
            }
            Kind::Iterator(others) => {
                let others = others.clone();
                let all_empty = others.iter().all(|(_, value)| value == "::std::iter::empty()");
                for (id, value) in others {
                    let one = value.strip_prefix("::std::iter::once(").and_then(|rest| rest.strip_suffix(")"));
                    // An empty iterator can be cloned for any item type.
                    let other = match one {
                        Some(one) => format!("Some({one}).into_iter()"),
                        None if all_empty => "core::iter::empty()".to_owned(),
                        None => "None.into_iter()".to_owned(),
                    };
                    self.region(id, |this| {
                        this.emit(&format!(" if {} {{ return crate::mutant::Either::Other({other}); }}", asked(id)))
                    });
                }
                self.emit(" crate::mutant::Either::Core({");
            }
            Kind::End => self.emit("})"),
            Kind::Binary { left, operator, right, others } => {
                let (left, right, others, operator) =
                    (left.clone(), right.clone(), others.clone(), &source[operator.clone()]);
                if matches!(operator, "&&" | "||") {
                    let (id, _) = others[0];
                    let test = if operator == "&&" { "!=" } else { "==" };
                    self.emit("({ let left: bool = ");
                    self.copy(left, Some(index));
                    self.emit(&format!("; if left {test} {} {{ ", asked(id)));
                    self.copy(right, Some(index));
                    self.emit(" } else { left } })");
                    return;
                }
                self.emit("(");
                for (id, other) in others {
                    self.region(id, |this| {
                        this.emit(&format!("if {} {{ ((", asked(id)));
                        this.copy(left.clone(), Some(index));
                        this.emit(&format!(") {other} ("));
                        this.copy(right.clone(), Some(index));
                        this.emit(")) } else ");
                    });
                }
                self.emit("{ ((");
                self.copy(left, Some(index));
                self.emit(&format!(") {operator} ("));
                self.copy(right, Some(index));
                self.emit(")) })");
            }
            Kind::Unary { operator, operand, id } => {
                let (operator, operand, id) = (&source[operator.clone()], operand.clone(), *id);
                self.emit("(");
                self.region(id, |this| {
                    this.emit(&format!("if {} {{ (", asked(id)));
                    this.copy(operand.clone(), Some(index));
                    this.emit(") } else ");
                });
                self.emit(&format!("{{ {operator}("));
                self.copy(operand, Some(index));
                self.emit(") })");
            }
            Kind::Guard { always, never, left_out } => {
                let (always, never, left_out) = (*always, *never, *left_out);
                if let Some(id) = left_out {
                    self.region(id, |this| this.emit(&format!("!{} && ", asked(id))));
                }
                self.emit("(");
                if let Some(id) = always {
                    self.region(id, |this| this.emit(&format!("{} || ", asked(id))));
                }
                if let Some(id) = never {
                    self.region(id, |this| this.emit(&format!("!{} && ", asked(id))));
                }
                self.emit("(");
                self.copy(at, Some(index));
                self.emit("))");
            }
            Kind::Arm(id) => {
                let id = *id;
                self.region(id, |this| this.emit(&format!(" if !{}", asked(id))));
            }
            Kind::Field { prefix, base, id } => {
                let (prefix, base, id) = (prefix.clone(), base.clone(), *id);
                self.emit(&prefix);
                self.region(id, |this| this.emit(&format!("if {} {{ {base} }} else ", asked(id))));
                self.emit("{ ");
                self.copy(at, Some(index));
                self.emit(" }");
            }
        }
    }
}

/// The byte offset of a line and column.
fn offset(source: &str, place: &Value) -> usize {
    let number = |name: &str| usize::try_from(place[name].as_u64().expect("a number")).expect("fits");
    let start =
        if number("line") == 1 { 0 } else { source.match_indices('\n').nth(number("line") - 2).expect("a line").0 + 1 };
    source[start..].char_indices().nth(number("column") - 1).map_or(source.len(), |(index, _)| start + index)
}

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [list, unviable, root, copy, regions] = arguments.as_slice() else { panic!("five arguments") };
    let list: Value = serde_json::from_str(&std::fs::read_to_string(list).expect("LIST")).expect("a list");
    let unviable: BTreeSet<u64> = std::fs::read_to_string(unviable)
        .unwrap_or_default()
        .split_whitespace()
        .map(|id| id.parse().expect("a number"))
        .collect();
    let mut files: BTreeMap<&str, Vec<(u64, &Value)>> = BTreeMap::new();
    for (id, mutant) in (1..).zip(list.as_array().expect("a list")) {
        files.entry(mutant["file"].as_str().expect("a file")).or_default().push((id, mutant));
    }
    let mut told = serde_json::Map::new();
    for (file, mutants) in files {
        let source = std::fs::read_to_string(Path::new(root).join(file)).expect("a source");
        let mut finder = Finder { source: source.clone(), ..Finder::default() };
        for (id, mutant) in mutants {
            if !unviable.contains(&id) {
                let span = offset(&source, &mutant["span"]["start"])..offset(&source, &mutant["span"]["end"]);
                let text = |name: &str| mutant[name].as_str().expect("a text").to_owned();
                finder.mutants.push(Mutant { id, genre: text("genre"), replacement: text("replacement"), span });
            }
        }
        finder.visit_file(&syn::parse_file(&source).expect("Rust"));
        for mutant in &finder.mutants {
            if !finder.placed.contains(&mutant.id) && !finder.impossible.contains_key(&mutant.id) {
                finder.impossible.insert(mutant.id, "not found");
            }
        }
        for (id, reason) in &finder.impossible {
            println!("{id} {reason}");
        }
        let mut writer = Writer { source: &source, edits: finder.edits, text: String::new(), regions: Vec::new() };
        writer.copy(0..source.len(), None);
        std::fs::write(Path::new(copy).join(file), &writer.text).expect("a file in COPY");
        let found: Vec<_> = writer.regions.iter().map(|(start, end, id)| json!([start, end, id])).collect();
        told.insert(file.to_owned(), Value::Array(found));
    }
    std::fs::write(regions, Value::Object(told).to_string()).expect("REGIONS");
}
