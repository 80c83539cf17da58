//! `fuseline completions`: what lets a shell complete commands, options and the names of built-in models.

use clap::CommandFactory;
use clap_complete::Shell;
use fuseline::gallery;
use serde_json::json;

use crate::arguments::{Arguments, Completions};
use crate::failure::Outcome;
use crate::screen;

/// Prints the completions for a shell.
pub fn completions(arguments: &Completions) -> Outcome {
    let mut text = Vec::new();
    clap_complete::generate(arguments.shell, &mut Arguments::command(), "fuseline", &mut text);
    let text = String::from_utf8_lossy(&text);
    let command = Arguments::command();
    let takes_model = |command: &&clap::Command| {
        // Other runtimes read files alone.
        command.get_name() != "compare" && command.get_positionals().any(|argument| argument.get_id() == "model")
    };
    let commands: Vec<&str> = command.get_subcommands().filter(takes_model).map(clap::Command::get_name).collect();
    let gallery = gallery::all().map(|entry| format!("gallery:{}", entry.name));
    let networks = gallery::NETWORKS.iter().map(|network| format!("demo:{}", network.name));
    let names = gallery.chain(networks).collect::<Vec<_>>().join(" ");
    let code = match arguments.shell {
        Shell::Bash => format!("{text}{}", for_bash(&commands, &names)),
        Shell::Zsh => for_zsh(&text, &names),
        Shell::Fish => format!("{text}{}", for_fish(&commands, &names)),
        _ => text.into_owned(),
    };
    match arguments.json {
        true => screen::print_json(&json!({ "shell": arguments.shell.to_string(), "code": code.trim_end() })),
        false => screen::print_code(&code),
    }
}

/// Names besides what is completed already; where nothing is, bash goes on with files. A colon is part of a name here; for bash it ends a word, unless
/// the user says otherwise in COMP_WORDBREAKS, which is the user's: then what is behind the last colon is completed.
fn for_bash(commands: &[&str], names: &str) -> String {
    let commands = commands.join("|");
    format!(
        r#"
_fuseline_models() {{
    _fuseline "$@"
    local line="${{COMP_LINE:0:COMP_POINT}}" word before typed="" name
    word="${{line##*[[:space:]]}}"
    before="${{line%"${{word}}"}}"
    before="${{before%"${{before##*[![:space:]]}}"}}"
    before="${{before##*[[:space:]]}}"
    if [[ "${{word}}" == *:* && "${{COMP_WORDBREAKS}}" == *:* ]]; then
        typed="${{word%:*}}:"
        COMPREPLY=()
    fi
    case "${{COMP_WORDS[1]}}" in
        {commands})
            if [[ ${{COMP_CWORD}} -gt 1 && "${{word}}" != -* && "${{before}}" != --* ]]; then
                for name in $(compgen -W "{names}" -- "${{word}}"); do
                    COMPREPLY+=( "${{name#"${{typed}}"}}" )
                done
            fi
            ;;
    esac
}}
complete -F _fuseline_models -o bashdefault -o default fuseline
"#
    )
}

/// Names and files where a model is wanted.
fn for_zsh(text: &str, names: &str) -> String {
    let line = |line: &str| match line.starts_with("':model -- ") || line.starts_with("'::model -- ") {
        true => line.replace(":_default'", ":_fuseline_models'"),
        false => line.to_owned(),
    };
    let lines: Vec<String> = text.lines().map(line).collect();
    let [first, rest @ ..] = lines.as_slice() else { return String::new() };
    format!("{first}\n\n_fuseline_models() {{\n    compadd -- {names}\n    _files\n}}\n{}\n", rest.join("\n"))
}

/// Names besides files, which fish completes anyway.
fn for_fish(commands: &[&str], names: &str) -> String {
    let line = |command: &&str| {
        format!("complete -c fuseline -n \"__fish_fuseline_using_subcommand {command}\" -a \"{names}\"\n")
    };
    commands.iter().map(line).collect()
}
