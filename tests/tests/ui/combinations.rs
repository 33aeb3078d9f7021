//! The attributes as programs use them: every argument with every kind of parameter, in one
//! program.
//!
//! Each function of the table of [`sites`] and [`parameters`] is compiled by clippy under strict
//! lints, in edition 2021 and with the runtime under another name. Its future is `Send` if that of
//! the same function without the attribute is, which is compiled too.

mod parameters;
mod sites;

use crate::compiles;
use parameters::{PARAMETERS, Parameter, Place};
use sites::{Form, SITES, Site};
use std::fmt::Write as _;
use std::fs;

/// Lints that concern the functions without an attribute just as much are allowed.
const HEADER: &str = "\
//! Generated.
#![forbid(unsafe_code)]
#![deny(warnings, missing_docs, let_underscore_drop, unused_qualifications, unreachable_pub)]
#![deny(rust_2018_idioms, single_use_lifetimes, unused_lifetimes, trivial_casts)]
#![deny(clippy::all, clippy::pedantic, clippy::nursery)]
#![allow(clippy::missing_errors_doc, clippy::needless_pass_by_value, clippy::needless_arbitrary_self_type, clippy::boxed_local)]
#![allow(clippy::future_not_send, clippy::await_holding_lock, clippy::redundant_clone, clippy::wildcard_imports, clippy::redundant_pub_crate)]
#![allow(clippy::large_stack_frames)]
";

/// The names of the attributes' arguments, as the macro declares them; `crate` is at every site.
const ARGUMENTS: &str = include_str!("../../../advisory-derive/src/attribute.rs");

fn assert_each_argument_is_at_a_site() {
    for (list, attribute) in [
        ("const LOCK: ", "advisory_lock"),
        ("const LEASE: ", "advisory_lease"),
    ] {
        let (_, names) = ARGUMENTS.split_once(list).expect("the names");
        let (names, _) = names.split_once("];\n").expect("their end");
        let names: Vec<&str> = names.split('"').skip(1).step_by(2).collect();
        assert!(names.len() > 14, "{names:?}");
        let sites = SITES.iter().filter(|site| site.attribute == attribute);
        let arguments: Vec<&str> = sites.map(|site| site.arguments).collect();
        for name in names.iter().filter(|name| **name != "crate") {
            let forms = [format!("{name} = "), format!("{name}(")];
            let is_there = |text: &&str| forms.iter().any(|form| text.contains(form.as_str()));
            assert!(arguments.iter().any(is_there), "{attribute}: {name}");
        }
    }
}

/// Why a parameter cannot be at a site.
fn misfit(site: &Site, parameter: &Parameter) -> Option<&'static str> {
    let is_plain = site.form == Form::Plain;
    if is_plain && parameter.awaits {
        return Some("a plain function cannot await");
    }
    if is_plain && matches!(parameter.place, Place::AsyncTrait(_)) {
        return Some("`#[async_trait]` is for async functions");
    }
    if site.is_late && (parameter.moves || matches!(parameter.place, Place::AsyncTrait(_))) {
        return Some("the body has moved it when `err` converts an error of the commit");
    }
    None
}

/// What is asserted of the future. It is `Send` as without the attribute, except for what the guide
/// names. One that is not `Send` without the attribute only has to compile with it.
const fn assertion(site: &Site, parameter: &Parameter) -> Option<&'static str> {
    if site.attribute.is_empty() {
        return Some(if parameter.is_send {
            "is_send"
        } else {
            "is_not_send"
        });
    }
    if !parameter.is_send {
        return None;
    }
    // `#[async_trait]` moves the parameters into the body.
    let is_boxed = matches!(parameter.place, Place::AsyncTrait(_));
    let is_shared = site.shares || site.is_late && parameter.is_field;
    let is_kept = is_boxed || parameter.output_is_send && (!is_shared || parameter.is_sync);
    Some(if is_kept { "is_send" } else { "is_not_send" })
}

/// Writes the program, and lets clippy check it.
pub(crate) fn check(host: &str) {
    assert_each_argument_is_at_a_site();
    let (mut functions, mut send, mut not_send) = <([String; 2], String, String)>::default();
    let mut number = 0;
    for parameter in &PARAMETERS {
        for site in &SITES {
            if misfit(site, parameter).is_some() {
                continue;
            }
            number += 1;
            let function = Function {
                site,
                parameter,
                number,
            };
            let is_plain = site.form == Form::Plain;
            functions[usize::from(is_plain)] += &function.item();
            match assertion(site, parameter).filter(|_| !is_plain) {
                // All in one function, because the compiler then proves what they have in common
                // only once.
                Some("is_send") => writeln!(send, "is_send({});", function.call()),
                // Each in its own, because it would solve all of them together.
                Some(other) => writeln!(
                    not_send,
                    "fn {}_is_not() {{ {other}({}); }}",
                    function.name(),
                    function.call()
                ),
                None => Ok(()),
            }
            .expect("a text");
        }
    }
    let [futures, plain] = functions;
    let support = include_str!("../../ui/combinations/support.rs");
    let program = format!(
        "{HEADER}\n{support}\n{futures}\n/// Plain functions.\npub mod plain_functions {{\nuse super::*;\nuse super::plain::{{needs, touch, work}};\n{plain}}}\n\
         \n#[allow(dead_code, clippy::too_many_lines)]\nmod futures {{\nuse super::*;\nfn all() {{\n{send}}}\nmod not_send {{\nuse super::*;\n{not_send}}}\n}}\n"
    );
    let project = compiles::project("combinations", manifest);
    fs::write(project.join("lib.rs"), program).expect("the target folder is ours");
    compiles::cargo("clippy", &project, host);
}

/// The manifest of the other programs, with the runtime under another name and in edition 2021.
fn manifest(of_others: &str) -> String {
    let manifest = of_others
        .replace("[dependencies.advisory-runtime]", "[dependencies.advisory]")
        .replace(
            "[workspace.dependencies.advisory-runtime]",
            "[workspace.dependencies.advisory]\npackage = \"advisory-runtime\"",
        );
    let manifest = manifest.replace("edition = \"2024\"", "edition = \"2021\"");
    let manifest = manifest.replace("\"advisory-tests-tests\"", "\"advisory-combinations\"");
    assert!(manifest.contains("\"2021\"") && manifest.contains("advisory-combinations"));
    manifest + "\n\n[lib]\npath = 'lib.rs'\n"
}

struct Function<'a> {
    site: &'a Site,
    parameter: &'a Parameter,
    number: usize,
}

impl Function<'_> {
    fn name(&self) -> String {
        format!("{}_of_{}", self.site.name, self.parameter.name)
    }

    /// The attribute, with `read` as the expression of the parameter.
    fn attribute(&self, read: &str) -> String {
        let Site {
            attribute,
            arguments,
            ..
        } = self.site;
        if attribute.is_empty() {
            return String::new();
        }
        let arguments = arguments
            .replace("{word}", &self.name())
            .replace("{number}", &self.number.to_string())
            .replace("{held}", self.parameter.held)
            .replace("{read}", read);
        format!("#[{attribute}({arguments}, crate = advisory)]\n")
    }

    fn signature(&self) -> String {
        let Parameter {
            generics,
            bounds,
            written,
            output,
            ..
        } = self.parameter;
        let (keyword, params) = (self.keyword(), self.site.params);
        format!(
            "{keyword}fn {}{generics}({written}, {params}) -> {output} {bounds}",
            self.name()
        )
    }

    const fn keyword(&self) -> &'static str {
        match self.site.form {
            Form::Async => "async ",
            Form::Plain => "",
        }
    }

    fn body(&self, read: &str) -> String {
        let Parameter { before, last, .. } = self.parameter;
        let (uses, wait) = match self.site.form {
            Form::Async => (self.site.uses, ".await"),
            Form::Plain => (self.site.uses, ""),
        };
        format!(
            "{{\n{before}\nlet first = work({read}){wait};\n{uses}\nlet second = work({read} + first){wait};\n\
             if second == 7 {{ return Err(fail(second)); }}\n{last}\n}}"
        )
    }

    fn item(&self) -> String {
        let Parameter {
            read,
            written,
            output,
            ..
        } = self.parameter;
        let (attribute, signature, body) =
            (self.attribute(read), self.signature(), self.body(read));
        let name = self.name();
        let documented = format!(
            "/// `{}`.\n{attribute}pub {signature} {body}\n",
            self.site.name
        );
        match self.parameter.place {
            Place::Free => documented,
            Place::Method(ty) => {
                let ty = self.owner(ty);
                format!("impl {ty} {{\n{documented}}}\n")
            }
            Place::Trait | Place::AsyncTrait(_) => {
                let ty = self.owner("Owner");
                let through = match self.parameter.place {
                    Place::AsyncTrait(arguments) => {
                        format!("#[async_trait::async_trait{arguments}]\n")
                    }
                    _ => String::new(),
                };
                let title = format!("Trait{}", self.number);
                format!(
                    "{through}trait {title} {{ {signature}; }}\n{through}impl {title} for {ty} {{\n{attribute}{signature} {body}\n}}\n"
                )
            }
            Place::Passed => format!(
                "macro_rules! {name} {{ ($($tokens:tt)*) => {{ $($tokens)* }}; }}\n{name}! {{ {documented} }}\n"
            ),
            Place::Made => {
                let (attribute, body) = (self.attribute("$read"), self.body("$read"));
                let (keyword, params) = (self.keyword(), self.site.params);
                format!(
                    "macro_rules! {name} {{ ($name:ident, $param:ident: $ty:ty, $read:expr_2021, $output:ty) => {{\n/// `{}`.\n{attribute}\
                     pub {keyword}fn $name($param: $ty, {params}) -> $output {body}\n}}; }}\n{name}! {{ {name}, {written}, {read}, {output} }}\n",
                    self.site.name
                )
            }
        }
    }

    /// The type of `self`, whose connection is that of the site.
    fn owner(&self, ty: &str) -> String {
        match (ty, self.site.form) {
            ("Owner", Form::Plain) => "Owner<PgConnection>".to_owned(),
            _ => ty.to_owned(),
        }
    }

    fn call(&self) -> String {
        let (name, given) = (self.name(), self.parameter.given);
        let path = match self.parameter.place {
            Place::Method(ty) => format!("{ty}::{name}"),
            Place::Trait | Place::AsyncTrait(_) => format!("Trait{}::{name}", self.number),
            Place::Free | Place::Passed | Place::Made => name,
        };
        format!("{path}({given}, {})", self.site.given)
    }
}
