//! A key outside the attribute: `#[derive(LockKey)]`, and `lock_key!`.

use crate::args::Args;
use crate::check::used;
use crate::errors::Errors;
use crate::key::{KeyPattern, Names, writer};
use crate::record::{self, Entry};
use crate::seen::{self, Known};
use advisory_pattern::{Derivation, KeySpace};
use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote, quote_spanned};
use syn::{Attribute, Data, DeriveInput, Fields, LitStr};

/// What can stand behind a pattern; a type has nothing to compute `with`, which is the first.
const KNOWN: [&str; 7] = [
    "with",
    "name",
    "component",
    "derivation",
    "allow_ambiguous",
    "allow_overlap",
    "crate",
];

/// `#[derive(LockKey)] #[lock_key("account:<id>")] struct AccountLock { id: AccountId }`.
pub(crate) fn lock_key(input: TokenStream, errors: &mut Errors) -> Option<TokenStream> {
    let here = Span::mixed_site();
    let input = parsed(input, errors)?;
    let name = &input.ident;
    let attribute = only(&input.attrs, "lock_key");
    let Some(arguments) = attribute.and_then(|attribute| attribute.meta.require_list().ok()) else {
        errors.at(
            name.span(),
            "write the key pattern: `#[lock_key(\"account:<id>\")]`",
        );
        return None;
    };
    let declared = Declared::parse(arguments.tokens.clone(), &KNOWN[1..], errors)?;
    let Data::Struct(data) = &input.data else {
        errors.at(
            name.span(),
            format_args!(
                "`{name}` is no struct: a declared lock is a struct with the key's values as fields"
            ),
        );
        return None;
    };
    if let Fields::Unnamed(_) = &data.fields {
        errors.at(
            name.span(),
            format_args!(
                "`{name}` has no names for its fields: write `struct {name} {{ id: … }}` and `<id>`"
            ),
        );
        return None;
    }
    let types: Vec<TokenStream> = data
        .fields
        .iter()
        .map(|field| field.ty.to_token_stream())
        .collect();
    let fields = data
        .fields
        .iter()
        .zip(&types)
        .filter_map(|(field, ty)| Some((field.ident.as_ref()?, Some(ty))));
    let names = Names {
        of: format!("field of `{name}`"),
        known: Some(fields.collect()),
        has_self: false,
    };
    declared.check(
        &names,
        "several locks, and a declared lock is one: name a single value",
        errors,
    );

    let word = name.to_string();
    if errors.is_empty() {
        let space = KeySpace::Declared.under(declared.derivation());
        declared.note(
            &names,
            space,
            format!("struct `{word}`"),
            Some(&word),
            errors,
        );
    }
    let purpose = input.attrs.iter().map(ToTokens::to_token_stream).collect();
    let record = declared.record("struct", word, record::purpose(&purpose), &names);

    let krate = declared.krate();
    // The receiver is the user's own `self`, so that a field is found whatever the hygiene of the pattern's tokens.
    let this = Ident::new("self", declared.pattern.literal.span());
    // With a mistake in the pattern the type is still a key, so that its users do not fail too.
    let writes = if errors.is_empty() {
        declared.pattern.writes(&names, &krate, Some(&this))
    } else {
        TokenStream::new()
    };
    let new = writer(declared.derivation(), &krate);
    let text = declared.pattern.literal.value();
    let (generics, arguments, bounds) = input.generics.split_for_impl();
    let receiver = Ident::new("self", declared.pattern.literal.span());
    Some(quote_spanned!(here=>
        #record
        impl #generics #krate::LockKey for #name #arguments #bounds {
            fn key(&#receiver) -> #krate::Key {
                let mut key = #new;
                #writes
                key.finish()
            }

            fn rendered(&#receiver) -> #krate::__private::String {
                let mut key = #krate::__private::KeyWriter::text_only();
                #writes
                key.into_text()
            }

            fn pattern(&self) -> &'static str {
                #text
            }
        }
    ))
}

/// `lock_key!("account:<id>")`: the key of names that are in scope.
pub(crate) fn inline(input: TokenStream, errors: &mut Errors) -> Option<TokenStream> {
    let here = Span::mixed_site();
    let declared = Declared::parse(input, &KNOWN, errors)?;
    let names = Names {
        of: "name in scope".to_owned(),
        known: None,
        has_self: true,
    };
    declared.check(
        &names,
        "several keys, and `lock_key!` is one: call it for each element",
        errors,
    );
    if errors.is_empty() {
        let space = KeySpace::Advisory;
        declared.note(&names, space, "`lock_key!`".to_owned(), None, errors);
    }
    let record = declared.record("macro", "lock_key!".to_owned(), None, &names);
    let with = declared.args.with.as_deref().unwrap_or_default();
    used(with, std::iter::once(&declared.pattern), errors);
    let with = with
        .iter()
        .map(|(name, expression)| quote_spanned!(here=> let #name = #expression;));
    let key = declared
        .pattern
        .expression(&names, declared.derivation(), &declared.krate());
    Some(quote_spanned!(here=> { #record #(#with)* #key }))
}

/// A pattern and the arguments behind it.
struct Declared {
    pattern: KeyPattern,
    args: Args,
}

impl Declared {
    fn parse(tokens: TokenStream, known: &[&str], errors: &mut Errors) -> Option<Self> {
        let mut tokens = tokens.into_iter();
        let first: TokenStream = tokens.next().into_iter().collect();
        let Ok(literal) = syn::parse2::<LitStr>(first) else {
            errors.at(
                Span::call_site(),
                "expected a key pattern: a string literal such as `\"account:<id>\"`",
            );
            return None;
        };
        match tokens.next() {
            Some(TokenTree::Punct(punct)) if punct.as_char() != ',' => {
                errors.at(
                    punct.span(),
                    "expected `,` and an argument behind the key pattern",
                );
            }
            _ => {}
        }
        let args = Args::parse(tokens.collect(), known, errors);
        Some(Self {
            pattern: KeyPattern::parse(literal, errors)?,
            args,
        })
    }

    /// One lock, of names that there are; `but` says what a slice would be instead.
    fn check(&self, names: &Names<'_>, but: &str, errors: &mut Errors) {
        let may_be_ambiguous = self.args.allow_ambiguous.is_some();
        self.pattern.check(names, may_be_ambiguous, errors);
        if let Some(slice) = self.pattern.slice() {
            let span = self.pattern.literal.span();
            errors.at(span, format_args!("`<{}>` would be {but}", slice.source));
        }
    }

    fn note(
        &self,
        names: &Names<'_>,
        space: KeySpace,
        item: String,
        word: Option<&str>,
        errors: &mut Errors,
    ) {
        let sharing = self.args.sharing();
        seen::note(
            &[self.pattern.known(names)],
            space,
            self.derivation(),
            &sharing,
            item,
            word,
            errors,
        );
    }

    fn record(
        &self,
        kind: &str,
        function: String,
        purpose: Option<String>,
        names: &Names<'_>,
    ) -> TokenStream {
        let Known { written, key, span } = self.pattern.known(names);
        let entry = Entry {
            kind,
            function,
            purpose,
            scope: "none",
            derivation: self.derivation(),
            keys: vec![(written, key)],
            span,
        };
        record::emit(entry, &self.args, &self.krate())
    }

    fn derivation(&self) -> Derivation {
        self.args.derivation.unwrap_or(Derivation::Sha256)
    }

    fn krate(&self) -> TokenStream {
        self.args
            .krate
            .clone()
            .unwrap_or_else(|| quote!(::advisory_runtime))
    }
}

pub(crate) fn parsed(input: TokenStream, errors: &mut Errors) -> Option<DeriveInput> {
    syn::parse2(input).map_err(|error| errors.push(error)).ok()
}

pub(crate) fn only<'a>(attributes: &'a [Attribute], name: &str) -> Option<&'a Attribute> {
    attributes
        .iter()
        .find(|attribute| attribute.path().is_ident(name))
}
