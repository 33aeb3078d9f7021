//! The function as it is emitted together with the errors, so that neither its callers nor its body
//! fail too.

use crate::args::Args;
use crate::args::argument::Known;
use crate::args::key::KeyArg;
use crate::attribute::Attribute;
use crate::errors::Errors;
use crate::function::{self, Form, Function, mentions, word};
use crate::tokens::hygienic;
use proc_macro2::TokenStream;
use quote::quote;

/// The function without a lock. The names that the attribute gives to the body are bound, and a
/// parameter that only the key uses causes no warning.
pub(crate) fn unlocked(attribute: Attribute, args: TokenStream, item: TokenStream) -> TokenStream {
    // Its errors have been reported already.
    let mut reported = Errors::default();
    let Some(function) = function::parse(item.clone(), attribute, &mut reported) else {
        return item;
    };
    let args = Args::parse(args, Known::of(attribute), &mut reported);
    let connection = connection(&args, &function);
    let handle = handle(&args, attribute, &function);
    let (head, body) = (&function.head, function.body.stream());
    let body = quote!(#connection #handle #body);
    let body = match function.form {
        Form::BoxedFuture => quote!(::std::boxed::Box::pin(async move { #body })),
        Form::Async | Form::Blocking => body,
    };
    quote! {
        #[allow(unused, clippy::all, reason = "the lock of this function has an error")]
        #head { #body }
    }
}

/// Statements that bind `conn`, if the body uses it and no parameter has the name.
fn connection(args: &Args, function: &Function) -> Option<TokenStream> {
    let runtime = args.runtime();
    let name = word(function.body.stream(), "conn").filter(|_| !function.has_param("conn"))?;
    let ty = if function.is_blocking() {
        hygienic!(blocking::PgConnection)
    } else {
        hygienic!(AsyncPgConnection)
    };
    Some(hygienic!(
        let mut #name = #runtime::__private::never::<#runtime::__private::#ty>();
        let mut #name = &mut #name;
    ))
}

fn handle(args: &Args, attribute: Attribute, function: &Function) -> Option<TokenStream> {
    let handle = args.handle.as_ref()?;
    let runtime = args.runtime();
    let private = hygienic!(#runtime::__private);
    let acquired = match attribute {
        Attribute::Lock if function.is_blocking() => {
            hygienic!(#runtime::blocking::LockInfo)
        }
        Attribute::Lock => hygienic!(#runtime::LockInfo),
        Attribute::Lease => hygienic!(#runtime::lease::Lease),
    };
    Some(match args.keys.as_deref() {
        Some([KeyArg::Expression(key)]) if mentions(&function.body.stream(), "holding") => {
            hygienic!(
                fn handle<'k, K>(_: &'k K) -> #private::Handle<#acquired, &'k K> {
                    #private::never()
                }
                let declared = #key;
                let #handle = handle(&declared);
            )
        }
        _ => hygienic!(let #handle = #private::never::<#acquired>();),
    })
}

#[cfg(test)]
mod tests {
    use super::unlocked;
    use crate::attribute::Attribute;
    use crate::written::{joined, rows};

    /// The code that is emitted with the error of an attribute.
    fn emitted(item: &str) -> String {
        let tokens = |text: &str| text.parse().expect("tokens");
        let unlocked = unlocked(Attribute::Lock, tokens("key = 7"), tokens(item));
        joined(&unlocked)
    }

    #[test]
    fn a_function_keeps_its_form_and_another_item_stays() {
        let allowed =
            "#[allow(unused,clippy::all,reason=\"the lock of this function has an error\")]";
        for [item, wanted] in rows("
            async fn run(at: At) -> Done { at } => asyncfnrun(at:At)->Done{at}
            fn run(at: At) -> u8 { at } => fnrun(at:At)->u8{at}
            const fn run(at: At) -> Done { at } => constfnrun(at:At)->Done{at}
            fn run(at: At) -> Pin<Box<dyn Future<Output = Done> + Send>> { Box::pin(async move { at }) } => fnrun(at:At)->Pin<Box<dynFuture<Output=Done>+Send>>{::std::boxed::Box::pin(asyncmove{at})}
        ") {
            let given = emitted(item);
            assert_eq!(given, format!("{allowed}{wanted}"));
        }
        // Without a body, or not a function.
        for item in [
            "async fn run(at: At) -> Done;",
            "fn run(at: At)",
            "struct At { at: u8 }",
            "",
        ] {
            let given = emitted(item);
            assert_eq!(given, joined(&item.parse().expect("tokens")));
        }
    }
}
