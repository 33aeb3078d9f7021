//! A key outside of the attribute: `#[derive(LockKey)]`, and `lock_key!`.

use crate::args::Args;
use crate::args::argument::Known;
use crate::args::key::{KeyArg, key};
use crate::attribute::PATTERN;
use crate::derive_input;
use crate::errors::Errors;
use crate::expand::expression::with_values;
use crate::key_pattern::names::Names;
use crate::key_pattern::{Ambiguity, KeyPattern, check_with, writer};
use crate::record;
use crate::site_facts::{Kind, SiteFacts, texts};
use crate::tokens::{first_span, hygienic, is_punct, is_word};
use proc_macro2::{Ident, TokenStream, TokenTree};
use quote::ToTokens;
use syn::{Data, Fields};

/// `#[derive(LockKey)] #[lock_key("account:<id>")] struct AccountLock { id: AccountId }`.
pub(crate) fn derive(input: TokenStream, errors: &mut Errors) -> Option<TokenStream> {
    let input = derive_input::parse(input, errors)?;
    let name = &input.ident;
    let attribute = derive_input::attribute(&input.attrs, "lock_key");
    let Some(arguments) = attribute.and_then(|attribute| attribute.meta.require_list().ok()) else {
        return errors.refuse(
            name.span(),
            "write the key pattern: `#[lock_key(\"account:<id>\")]`",
        );
    };
    let lock = PatternAndArgs::parse(arguments.tokens.clone(), errors)?;
    let Data::Struct(data) = &input.data else {
        return errors.refuse(
            name.span(),
            format_args!(
                "`{name}` is not a struct: declare the lock as a struct with the key's values as fields"
            ),
        );
    };
    if let Fields::Unnamed(_) = &data.fields {
        return errors.refuse(
            name.span(),
            format_args!(
                "the fields of `{name}` have no names: write `struct {name} {{ id: … }}` and `<id>`"
            ),
        );
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
    let with = lock.args.with.as_deref().unwrap_or_default();
    let computed = with.iter().map(|(name, _)| (name, None));
    let with_is_known = lock.args.with.is_some() || !lock.args.has("with");
    let names = Names {
        of: format!("field of `{name}`"),
        known: with_is_known.then(|| computed.chain(fields).collect()),
        has_self: false,
        computed: with,
    };
    check_with(with, std::iter::once(&lock.pattern), errors);
    lock.check(&names, "several locks: name a single value", errors);

    let purpose = input.attrs.iter().map(ToTokens::to_token_stream).collect();
    let purpose = record::purpose(&purpose);
    let record = lock.record(Kind::Struct, name.to_string(), purpose, &names, errors);

    let krate = lock.args.runtime();
    // With the pattern's hygiene, so that fields of `self` are found.
    let this = Ident::new("self", lock.pattern.literal.span());
    let values = with_values(with);
    // After a mistake in the pattern the type still implements the trait, so that its users do not
    // fail too.
    let writes = if errors.is_empty() {
        lock.pattern.writes(&names, &krate, Some(&this))
    } else {
        TokenStream::new()
    };
    let new = writer(lock.args.derivation(), &krate);
    let text = lock.pattern.text();
    let (finish, into_text) = (lock.pattern.finish(), lock.pattern.rendered());
    let (generics, arguments, bounds) = input.generics.split_for_impl();
    Some(hygienic!(
        #record
        #[automatically_derived]
        impl #generics #krate::LockKey for #name #arguments #bounds {
            fn key(&#this) -> #krate::Key {
                #values
                let mut key = #new;
                #writes
                #finish
            }

            fn rendered(&#this) -> #krate::__private::String {
                #values
                let mut key = #krate::__private::KeyWriter::text_only();
                #writes
                #into_text
            }

            fn pattern(&self) -> &'static str {
                #text
            }
        }
        #[automatically_derived]
        impl #generics #krate::DeclaredLock for #name #arguments #bounds {
            type Lock = Self;

            fn lock(&self) -> &Self {
                self
            }
        }
    ))
}

/// `lock_key!("account:<id>")`: the key of values that are in scope under these names.
pub(crate) fn expand(input: TokenStream, errors: &mut Errors) -> Option<TokenStream> {
    let lock = PatternAndArgs::parse(input, errors)?;
    let names = Names {
        of: "name in scope".to_owned(),
        known: None,
        has_self: true,
        computed: &[],
    };
    lock.check(
        &names,
        "several keys: call `lock_key!` for each element",
        errors,
    );
    let record = lock.record(Kind::Macro, "lock_key!".to_owned(), None, &names, errors);
    let with = lock.args.with.as_deref().unwrap_or_default();
    check_with(with, std::iter::once(&lock.pattern), errors);
    let with = with_values(with);
    let key = lock
        .pattern
        .expression(&names, lock.args.derivation(), &lock.args.runtime());
    let (krate, text) = (lock.args.runtime(), lock.pattern.text());
    Some(hygienic!({ #record #with #krate::__private::named(#key, #text) }))
}

struct PatternAndArgs {
    pattern: KeyPattern,
    args: Args,
}

impl PatternAndArgs {
    fn parse(tokens: TokenStream, errors: &mut Errors) -> Option<Self> {
        let mut tokens = tokens.into_iter().peekable();
        let is_named = tokens
            .next_if(|first| is_word(first, "key") || is_word(first, "pattern"))
            .is_some();
        let equals = tokens.next_if(|token| is_named && is_punct(token, '='));
        let written: TokenStream = tokens.next().into_iter().collect();
        let at = equals.map_or_else(|| first_span(&written), |equals| equals.span());
        let KeyArg::Pattern { first, literal } = key(written, errors)? else {
            let wanted = "expected a key pattern: a string literal such as `\"account:<id>\"`";
            return errors.refuse(at, wanted);
        };
        if is_named {
            let text = format!("\"{}\"", literal.value());
            let written = first.map_or(text.clone(), |first| format!("({first}, {text})"));
            let wanted = format_args!("expected only the key pattern: write `{written}`");
            errors.at(at, wanted);
        }
        if let Some(TokenTree::Punct(punct)) = tokens.next()
            && punct.as_char() != ','
        {
            errors.at(
                punct.span(),
                "expected `,` and an argument after the key pattern",
            );
        }
        let args = Args::parse(tokens.collect(), Known::only(&PATTERN), errors);
        let pattern = KeyPattern::parse(first, literal, errors)?;
        Some(Self { pattern, args })
    }

    /// Checks the pattern, and that it gives one key; `instead` is what a slice would give.
    fn check(&self, names: &Names<'_>, instead: &str, errors: &mut Errors) {
        let ambiguity = Ambiguity::unless(self.args.allow_ambiguous.is_some());
        self.pattern.check(names, ambiguity, errors);
        let span = self.args.span("derivation");
        self.pattern.check_half(self.args.derivation, span, errors);
        self.pattern.refuse_slice(instead, errors);
    }

    fn record(
        &self,
        kind: Kind,
        name: String,
        purpose: Option<String>,
        names: &Names<'_>,
        errors: &mut Errors,
    ) -> TokenStream {
        let facts = SiteFacts {
            kind,
            name,
            purpose,
            keys: vec![self.pattern.static_key(names)],
            with: texts(self.args.with.as_deref().unwrap_or_default()),
        };
        record::emit(facts, &self.args, errors)
    }
}

#[cfg(test)]
mod tests {
    use crate::written::{expansion, messages};

    #[test]
    fn a_key_has_the_fields_and_what_with_computes() {
        for (with, written) in [("", "&self.id"), (", with(id = self.id % 8)", "&id")] {
            let source = format!(
                "#[derive(LockKey)] #[lock_key(\"task:<id>\"{with})] struct TaskLock {{ id: i64 }}"
            );
            let expansion = expansion(&source);
            assert!(expansion.contains(written), "{with}: {expansion}");
        }
    }

    #[test]
    fn only_a_pattern_stands_first() {
        for (args, is_fine) in [
            ("\"a:<id>\"", true),
            ("= \"a:<id>\"", false),
            ("key = \"a:<id>\"", false),
            ("pattern = \"a:<id>\"", false),
            ("7", false),
        ] {
            let messages = messages(&format!("fn a(id: i64) {{ lock_key!({args}) }}"));
            assert_eq!(messages.is_empty(), is_fine, "{args}: {messages:?}");
        }
    }
}
