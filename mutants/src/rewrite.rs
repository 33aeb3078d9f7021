//! A file's text with its mutants in it.
//!
//! What is inserted is on lines of its own, which end with `//@` and the numbers of their mutants: so an error of the compiler names
//! the mutants that do not compile.

use crate::list::Mutant;
use crate::site::{Bytes, Kind, Site};
use std::collections::HashSet;
use std::fmt::Write as _;

/// What the compiler has refused so far.
#[derive(Default)]
pub(crate) struct Refused {
    pub(crate) mutants: HashSet<usize>,
    /// The names of functions that stay `const`, because a constant calls them.
    pub(crate) const_fns: HashSet<String>,
}

impl Refused {
    pub(crate) fn is_in_const(&self, site: &Site) -> bool {
        let name = site.const_fn.as_ref();
        name.is_some_and(|name| self.const_fns.contains(name))
    }
}

pub(crate) struct Rewriter<'a> {
    pub(crate) code: &'a str,
    pub(crate) sites: &'a [Site],
    pub(crate) mutants: &'a [Mutant],
    pub(crate) refused: &'a Refused,
}

impl Rewriter<'_> {
    pub(crate) fn file(&self) -> String {
        self.text(&(0..self.code.len()), 0)
    }

    /// The text of an expression, of which `first` is the first site that can be inside.
    fn text(&self, bytes: &Bytes, first: usize) -> String {
        let (mut text, mut at) = (String::new(), bytes.start);
        for (index, site) in self.sites.iter().enumerate().skip(first) {
            if site.bytes.start >= at && site.bytes.end <= bytes.end {
                let site_text = self.site(site, index + 1);
                if let Some(site_text) = site_text {
                    text.push_str(&self.code[at..site.bytes.start]);
                    text.push_str(&site_text);
                    at = site.bytes.end;
                }
            }
        }
        text + &self.code[at..bytes.end]
    }

    fn site(&self, site: &Site, next: usize) -> Option<String> {
        if self.refused.is_in_const(site) {
            return None;
        }
        if matches!(site.kind, Kind::Const) {
            return Some(String::new());
        }
        let numbers = site.mutants.iter().copied();
        let numbers: Vec<usize> = numbers
            .filter(|number| !self.refused.mutants.contains(number))
            .collect();
        if numbers.is_empty() {
            return None;
        }
        let text = |bytes: &Bytes| self.text(bytes, next);
        let replacement = |number: usize| self.mutants[number - 1].replacement.trim();
        let operator = |left: &Bytes, right: &Bytes| self.operator(left, right);
        let all: Vec<String> = numbers.iter().map(ToString::to_string).collect();
        let all = format!("//@{}\n", all.join(","));
        // One branch for each mutant, and the last for the code as it is.
        let branches = |mutant: &dyn Fn(usize) -> String, code: &str| {
            let mut text = String::new();
            for &number in &numbers {
                let mutant = mutant(number);
                let _ = writeln!(
                    text,
                    "if crate::__mutant::is({number}) {{ {mutant} }} else //@{number}"
                );
            }
            text + "{ " + code + " } " + &all
        };
        Some(match &site.kind {
            Kind::Const => return None,
            Kind::Body => numbers.iter().fold("\n".to_owned(), |text, &number| {
                let value = replacement(number);
                text + &format!(
                    "if crate::__mutant::is({number}) {{ return {value}; }} //@{number}\n"
                )
            }),
            Kind::Comparison(left, right) => {
                let mutant = |number| format!("__left {} __right", replacement(number));
                let code = format!("__left {} __right", operator(left, right));
                let branches = branches(&mutant, &code);
                let (left, right) = (text(left), text(right));
                format!(
                    "(match ( {all}&({left}), &({right})) {{ (__left, __right) => {all}{branches} }})"
                )
            }
            Kind::Arithmetic(left, right) => {
                let mutant = |number| format!("__left {} __right", replacement(number));
                let code = format!("__left {} __right", operator(left, right));
                let branches = branches(&mutant, &code);
                let (left, right) = (text(left), text(right));
                format!(
                    "(match ( {all}({left}), ({right})) {{ (__left, __right) => {all}{branches} }})"
                )
            }
            Kind::Logic(left, right) => {
                let comparison = if operator(left, right) == "&&" {
                    "!="
                } else {
                    "=="
                };
                let number = numbers[0];
                let (left, right) = (text(left), text(right));
                format!(
                    "({{ let __left: bool = {all}{left}; if __left {comparison} {all}crate::__mutant::is({number}) {all}\
                     {{ {right} }} else {{ __left }} {all}}})"
                )
            }
            Kind::Assignment(left, right) => {
                let place = text(left);
                let mutant = |number| format!("{place} {} __right", replacement(number));
                let code = format!("{place} {} __right", operator(left, right));
                let branches = branches(&mutant, &code);
                format!(
                    "(match ( {all}{}) {{ __right => {all}{branches} }})",
                    text(right)
                )
            }
            Kind::Unary(operand) => {
                let operator = self.code[site.bytes.start..operand.start].trim();
                let branches =
                    branches(&|_| "__operand".to_owned(), &format!("{operator}__operand"));
                format!(
                    "(match ( {all}{}) {{ __operand => {all}{branches} }})",
                    text(operand)
                )
            }
            Kind::Arm => format!("\nif !crate::__mutant::is({}) {all}", numbers[0]),
            Kind::Guard => {
                let mut guard = format!("({})", text(&site.bytes));
                for &number in &numbers {
                    let switch = format!("\ncrate::__mutant::is({number}) //@{number}\n");
                    guard = match replacement(number) {
                        "true" => format!("({switch} || {guard})"),
                        _ => format!("(!{switch} && {guard})"),
                    };
                }
                guard
            }
            Kind::Struct(fields) => {
                let without = |number| {
                    let index = site.mutants.iter().position(|mutant| *mutant == number);
                    let field = &fields[index.unwrap_or_default()];
                    let before = text(&(site.bytes.start..field.start));
                    before + &text(&(field.end..site.bytes.end))
                };
                format!("({})", branches(&without, &text(&site.bytes)))
            }
        })
    }

    /// The operator between two operands.
    fn operator(&self, left: &Bytes, right: &Bytes) -> &str {
        let between = self.code[left.end..right.start].lines();
        let lines = between.map(|line| line.split("//").next().unwrap_or(line).trim());
        lines
            .filter(|line| !line.is_empty())
            .next_back()
            .unwrap_or_default()
    }
}
