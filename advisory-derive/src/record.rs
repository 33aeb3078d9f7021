//! The record that a site leaves in the program: a static of flat bytes in a section of its own.

use crate::args::Args;
use crate::duration::Duration;
use advisory_pattern::{Derivation, LockedKey, MODULE_PATH, Record, encode_key};
use proc_macro2::{Literal, Span, TokenStream, TokenTree};
use quote::quote_spanned;
use syn::LitStr;

/// What a record says beside what the arguments say.
pub(crate) struct Entry<'a> {
    /// `fn`, `struct` or `macro`.
    pub(crate) kind: &'a str,
    pub(crate) function: String,
    pub(crate) purpose: Option<String>,
    pub(crate) scope: &'a str,
    pub(crate) derivation: Derivation,
    /// Each key as written, and as far as it is known.
    pub(crate) keys: Vec<(String, Option<LockedKey>)>,
    pub(crate) span: Span,
}

/// A registry's cell, not a page; a record has an end too.
const LONGEST_PURPOSE: usize = 500;

/// An item that the linker keeps, also where the function is never called.
pub(crate) fn emit(entry: Entry<'_>, args: &Args, krate: &TokenStream) -> TokenStream {
    let here = Span::mixed_site();
    let text = |literal: &Option<LitStr>| literal.as_ref().map(LitStr::value);
    let time = |time: &Option<Duration>| time.as_ref().map(|time| time.written.clone());
    let (file, line) = place(entry.span);
    let slim = cfg!(feature = "slim-inventory");
    let (written, keys) = entry
        .keys
        .into_iter()
        .map(|(written, key)| (written, encode_key(key.as_ref())))
        .unzip();
    let record = Record {
        kind: entry.kind.to_owned(),
        name: text(&args.name),
        component: text(&args.component),
        purpose: entry.purpose.filter(|_| !slim),
        written,
        keys,
        derivation: entry.derivation.name().to_owned(),
        scope: entry.scope.to_owned(),
        mode: if args.is_shared() {
            "shared".to_owned()
        } else {
            "exclusive".to_owned()
        },
        wait: args.wait.as_ref().map(|wait| wait.written().to_owned()),
        max_hold: time(&args.max_hold),
        isolation: args.isolation.map(|level| level.name().to_owned()),
        ttl: time(&args.ttl),
        renew: time(&args.renew),
        keep: time(&args.keep),
        allow_overlap: args
            .allow_overlap
            .iter()
            .map(|(other, why)| (other.value(), why.value()))
            .collect(),
        allow_ambiguous: text(&args.allow_ambiguous),
        module: MODULE_PATH.to_owned(),
        function: entry.function,
        file: if slim { String::new() } else { file },
        line: if slim { 0 } else { line },
        krate: variable("CARGO_PKG_NAME"),
        version: variable("CARGO_PKG_VERSION"),
    };
    let encoded = record.encode();
    // Only the compiler knows the module that the item stands in.
    let (before, behind) = encoded.split_once(MODULE_PATH).unwrap_or((&encoded, ""));
    let rest = Literal::usize_unsuffixed(before.len() + behind.len());
    quote_spanned!(here=> #krate::__private::record!(#rest #before #behind);)
}

/// The first line of the doc comment among a function's or a type's attributes.
pub(crate) fn purpose(head: &TokenStream) -> Option<String> {
    let mut tokens = head.clone().into_iter();
    while let Some(token) = tokens.next() {
        let TokenTree::Punct(punct) = &token else {
            return None;
        };
        let Some(TokenTree::Group(attribute)) = (punct.as_char() == '#').then(|| tokens.next())?
        else {
            return None;
        };
        let mut inside = attribute.stream().into_iter();
        let is_doc = matches!(inside.next(), Some(TokenTree::Ident(name)) if name == "doc");
        if is_doc && let Ok(line) = syn::parse2::<LitStr>(inside.skip(1).collect()) {
            let text = line.value();
            if let Some(first) = text.lines().map(str::trim).find(|line| !line.is_empty()) {
                return Some(first.chars().take(LONGEST_PURPOSE).collect());
            }
        }
    }
    None
}

/// The file relative to its crate's manifest, or to what its build script wrote, and the line. Not the remapped name, which only
/// one way to build has.
fn place(span: Span) -> (String, u32) {
    // A test of the macro has no compiler to ask.
    if !proc_macro::is_available() {
        return (String::new(), 0);
    }
    let span = span.unwrap();
    let file = span.local_file().unwrap_or_default();
    let absolute = std::env::current_dir().unwrap_or_default().join(file);
    let under = |base: &str| {
        let base = std::env::var_os(base).filter(|base| !base.is_empty())?;
        absolute
            .strip_prefix(base)
            .ok()
            .map(|path| path.display().to_string())
    };
    let file = under("CARGO_MANIFEST_DIR")
        .or_else(|| Some(format!("$OUT_DIR/{}", under("OUT_DIR")?)))
        .unwrap_or_else(|| span.file());
    (
        file.replace('\\', "/"),
        u32::try_from(span.line()).unwrap_or(0),
    )
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}
