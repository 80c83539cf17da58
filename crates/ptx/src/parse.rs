//! Texts of PTX, as NVRTC writes them: functions that are launched, with their parameters and shared memory.

use std::collections::HashMap;

use crate::instruction::{
    Action, Atomic, Comparison, Compute, Instruction, Operand, Rounding, Shuffle, Space, Special, Together, Type,
};

/// What is read of a text.
#[derive(Debug)]
pub struct Module {
    pub functions: Vec<Function>,
}

/// A function that can be launched.
#[derive(Debug)]
pub struct Function {
    pub name: String,
    pub(crate) code: Vec<Instruction>,
    pub(crate) registers: usize,
    /// the place of each parameter, and the bytes of all
    pub(crate) parameters: Vec<u64>,
    /// bytes of shared memory that the text declares: what a launch adds begins behind them
    pub(crate) shared: u64,
    /// blocks of a cluster
    pub(crate) cluster: u32,
}

impl Module {
    pub fn parse(text: &str) -> Result<Module, String> {
        let text = without_comments(text);
        let mut reader = Reader { text: &text, at: 0, line: 1 };
        let mut functions = Vec::new();
        while let Some(statement) = reader.statement()? {
            if let Statement::Function(head) = statement {
                functions.push(function(&mut reader, &head)?);
            }
        }
        Ok(Module { functions })
    }

    pub fn function(&self, name: &str) -> Option<&Function> {
        self.functions.iter().find(|function| function.name == name)
    }
}

fn without_comments(text: &str) -> String {
    text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<&str>>().join("\n")
}

enum Statement<'t> {
    Open,
    Close,
    Label(&'t str),
    /// all before the code of a function
    Function(String),
    Other(&'t str),
}

struct Reader<'t> {
    text: &'t str,
    at: usize,
    line: usize,
}

impl<'t> Reader<'t> {
    fn skip(&mut self, bytes: usize) {
        self.line += self.text[self.at..self.at + bytes].matches('\n').count();
        self.at += bytes;
    }

    fn statement(&mut self) -> Result<Option<Statement<'t>>, String> {
        let blank = self.text[self.at..].len() - self.text[self.at..].trim_start().len();
        self.skip(blank);
        let rest = &self.text[self.at..];
        let Some(first) = rest.chars().next() else {
            return Ok(None);
        };
        if let Some(brace) = [('{', Statement::Open), ('}', Statement::Close)].into_iter().find(|(c, _)| *c == first) {
            self.skip(1);
            return Ok(Some(brace.1));
        }
        if rest.starts_with(".func") || rest.starts_with(".visible .func") {
            return Err(format!("line {}: a function that is called is not known here", self.line));
        }
        if rest.starts_with(".visible .entry") || rest.starts_with(".entry") {
            let end = rest.find('{').ok_or("a function without code")?;
            self.skip(end + 1);
            return Ok(Some(Statement::Function(rest[..end].to_owned())));
        }
        // Directives before the first function have no semicolon.
        if [".version", ".target", ".address_size"].iter().any(|directive| rest.starts_with(directive)) {
            let end = rest.find('\n').unwrap_or(rest.len());
            self.skip(end);
            return self.statement();
        }
        let word = rest.find(|c: char| !c.is_ascii_alphanumeric() && !"_$%".contains(c)).unwrap_or(rest.len());
        if word > 0 && rest[word..].starts_with(':') && !rest[word..].starts_with("::") {
            self.skip(word + 1);
            return Ok(Some(Statement::Label(&rest[..word])));
        }
        let end = rest.find(';').ok_or_else(|| format!("line {}: a statement without an end", self.line))?;
        self.skip(end + 1);
        Ok(Some(Statement::Other(rest[..end].trim())))
    }
}

/// Names that are known, by scope.
struct Names {
    registers: Vec<HashMap<String, u32>>,
    count: u32,
    shared: HashMap<String, u64>,
    parameters: HashMap<String, u64>,
}

fn function(reader: &mut Reader<'_>, head: &str) -> Result<Function, String> {
    let (open, close) = (head.find('(').ok_or("no parameters")?, head.find(')').ok_or("no parameters")?);
    let name = head[..open].split_whitespace().last().ok_or("a function without a name")?.to_owned();
    let mut names =
        Names { registers: vec![HashMap::new()], count: 0, shared: HashMap::new(), parameters: HashMap::new() };
    let parameters = parameters(&head[open + 1..close], &mut names)?;
    let cluster = head.split(".reqnctapercluster").nth(1).and_then(|rest| rest.split(',').next()?.trim().parse().ok());
    let shared = declare_shared(reader, &mut names)?;
    let (mut code, mut labels, mut depth) = (Vec::new(), HashMap::new(), 0);
    loop {
        let line = reader.line;
        let at_line = |why: String| format!("line {line}: {why}");
        match reader.statement()?.ok_or("a function without an end")? {
            Statement::Open => {
                depth += 1;
                names.registers.push(HashMap::new());
            }
            Statement::Close if depth == 0 => break,
            Statement::Close => {
                depth -= 1;
                names.registers.pop();
            }
            Statement::Label(label) => {
                labels.insert(label.to_owned(), code.len());
            }
            Statement::Function(_) => return Err(at_line("a function in another one".into())),
            Statement::Other(text) if text.starts_with(".reg") => names.declare(text).map_err(at_line)?,
            Statement::Other(text) if text.starts_with(".shared") || text.starts_with(".pragma") => {}
            Statement::Other(text) => code.push(instruction(text, &names, line).map_err(at_line)?),
        }
    }
    for instruction in &mut code {
        if let (Action::Jump, Some(Operand::Label(label))) = (&instruction.action, instruction.operands.first()) {
            instruction.target =
                *labels.get(label).ok_or_else(|| format!("line {}: no label {label}", instruction.line))?;
        }
    }
    Ok(Function { name, code, registers: names.count as usize, parameters, shared, cluster: cluster.unwrap_or(1) })
}

/// The places of parameters, and behind them the bytes of all.
fn parameters(text: &str, names: &mut Names) -> Result<Vec<u64>, String> {
    let (mut places, mut at) = (Vec::new(), 0u64);
    for parameter in text.split(',').map(str::trim).filter(|parameter| !parameter.is_empty()) {
        let words: Vec<&str> = parameter.split_whitespace().collect();
        let ty = words.iter().find_map(|word| Type::parse(word.trim_start_matches('.')));
        let ty = ty.ok_or_else(|| format!("a parameter without a type: {parameter}"))?;
        let (name, count) = declared(words.last().copied().unwrap_or_default());
        let alignment = words.iter().position(|word| *word == ".align").and_then(|k| words.get(k + 1)?.parse().ok());
        at = at.next_multiple_of(alignment.unwrap_or(ty.bytes() as u64));
        names.parameters.insert(name.to_owned(), at);
        places.push(at);
        at += ty.bytes() as u64 * count.unwrap_or(1);
    }
    places.push(at);
    Ok(places)
}

/// A name and how many there are: `name[12]`; none, where that is left open.
fn declared(text: &str) -> (&str, Option<u64>) {
    match text.split_once('[') {
        Some((name, rest)) => (name, rest.trim_end_matches(']').parse().ok()),
        None => (text, Some(1)),
    }
}

/// Places of all shared memory that the whole text declares in this function, and before all: what is open lies behind.
fn declare_shared(reader: &Reader<'_>, names: &mut Names) -> Result<u64, String> {
    let end = reader.text[reader.at..].find(".entry").map_or(reader.text.len(), |end| reader.at + end);
    let outside = reader.text.split(';').filter(|statement| statement.contains(".extern .shared"));
    let inside = reader.text[reader.at..end].split(';').filter(|text| text.contains(".shared .align"));
    let (mut at, mut open) = (0u64, Vec::new());
    for statement in inside.chain(outside) {
        let Some(start) = statement.find(".shared .align") else {
            continue;
        };
        let words: Vec<&str> = statement[start..].split_whitespace().collect();
        let [_, _, alignment, ty, declaration, ..] = words.as_slice() else {
            return Err(format!("shared memory that is declared otherwise: {statement}"));
        };
        let bytes = Type::parse(ty.trim_start_matches('.')).map_or(1, Type::bytes) as u64;
        let alignment: u64 = alignment.parse().map_err(|_| "an alignment that is no number")?;
        match declared(declaration) {
            (name, Some(count)) => {
                at = at.next_multiple_of(alignment);
                names.shared.insert(name.to_owned(), at);
                at += bytes * count;
            }
            (name, None) => open.push(name.to_owned()),
        }
    }
    // What a launch adds begins where packs and tiles can.
    at = at.next_multiple_of(1024);
    names.shared.extend(open.into_iter().map(|name| (name, at)));
    Ok(at)
}

impl Names {
    fn declare(&mut self, text: &str) -> Result<(), String> {
        let rest = text.trim_start_matches(".reg").trim();
        let (_, list) = rest.split_once(char::is_whitespace).ok_or("registers without a name")?;
        for name in list.split(',').map(str::trim) {
            let scope = self.registers.last_mut().ok_or("no scope")?;
            match name.split_once('<') {
                Some((prefix, count)) => {
                    let count: u32 = count.trim_end_matches('>').parse().map_err(|_| "a number of registers")?;
                    for k in 0..count {
                        scope.insert(format!("{prefix}{k}"), self.count + k);
                    }
                    self.count += count;
                }
                None => {
                    scope.insert(name.to_owned(), self.count);
                    self.count += 1;
                }
            }
        }
        Ok(())
    }

    fn register(&self, name: &str) -> Option<u32> {
        self.registers.iter().rev().find_map(|scope| scope.get(name).copied())
    }

    fn operand(&self, text: &str) -> Result<Operand, String> {
        let text = text.trim();
        if let Some(inside) = text.strip_prefix('{').and_then(|text| text.strip_suffix('}')) {
            return Ok(Operand::Vector(inside.split(',').map(|one| self.operand(one)).collect::<Result<_, _>>()?));
        }
        if let Some(inside) = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
            let (base, behind) = match inside.split_once('+') {
                Some((base, behind)) => (base.trim(), behind.trim().parse::<i64>().map_err(|_| "no offset")?),
                None => (inside.trim(), 0),
            };
            return Ok(match self.parameters.get(base) {
                Some(place) => Operand::Parameter(place.wrapping_add_signed(behind)),
                None => Operand::Address(Box::new(self.operand(base)?), behind),
            });
        }
        if let Some(register) = self.register(text) {
            return Ok(Operand::Register(register));
        }
        if let Some(place) = self.shared.get(text) {
            return Ok(Operand::Constant(*place));
        }
        let special = match text {
            "%tid.x" => Some(Special::Thread),
            "%ntid.x" => Some(Special::Threads),
            "%ctaid.x" => Some(Special::Block),
            "%nctaid.x" => Some(Special::Blocks),
            "%laneid" => Some(Special::Lane),
            "%cluster_ctarank" => Some(Special::RankInCluster),
            "%tid.y" | "%tid.z" | "%ctaid.y" | "%ctaid.z" => Some(Special::Zero),
            _ => None,
        };
        if let Some(special) = special {
            return Ok(Operand::Special(special));
        }
        if text == "_" {
            return Ok(Operand::Nowhere);
        }
        if let Some(bits) = text.strip_prefix("0f").or_else(|| text.strip_prefix("0F")) {
            return u64::from_str_radix(bits, 16).map(Operand::Constant).map_err(|_| format!("no float: {text}"));
        }
        if let Some(bits) = text.strip_prefix("0d").or_else(|| text.strip_prefix("0D")) {
            return u64::from_str_radix(bits, 16).map(Operand::Constant).map_err(|_| format!("no float: {text}"));
        }
        if let Some(bits) = text.strip_prefix("0x") {
            let bits = bits.trim_end_matches('U');
            return u64::from_str_radix(bits, 16).map(Operand::Constant).map_err(|_| format!("no number: {text}"));
        }
        if text.contains('.') && text.starts_with(|c: char| c.is_ascii_digit() || c == '-') {
            return text.parse().map(|x: f64| Operand::Constant(x.to_bits())).map_err(|_| format!("no number: {text}"));
        }
        if text.starts_with(|c: char| c.is_ascii_digit() || c == '-') {
            let number: i128 = text.trim_end_matches('U').parse().map_err(|_| format!("no number: {text}"))?;
            return Ok(Operand::Constant(number as u64));
        }
        Ok(Operand::Label(text.to_owned()))
    }
}

/// Operands, which commas part that are in no braces or brackets.
fn operands(text: &str, names: &Names) -> Result<Vec<Operand>, String> {
    let (mut all, mut depth, mut start) = (Vec::new(), 0, 0);
    for (k, c) in text.char_indices() {
        match c {
            '{' | '[' => depth += 1,
            '}' | ']' => depth -= 1,
            ',' | '|' if depth == 0 => {
                all.push(names.operand(&text[start..k])?);
                start = k + 1;
            }
            _ => {}
        }
    }
    if !text[start..].trim().is_empty() {
        all.push(names.operand(&text[start..])?);
    }
    Ok(all)
}

fn instruction(text: &str, names: &Names, line: usize) -> Result<Instruction, String> {
    let (guard, text) = match text.strip_prefix('@') {
        Some(rest) => {
            let (guard, rest) = rest.split_once(char::is_whitespace).ok_or("a guard of nothing")?;
            let is_not = guard.starts_with('!');
            let register = names.register(guard.trim_start_matches('!')).ok_or("a guard that is no register")?;
            (Some((register, !is_not)), rest.trim())
        }
        None => (None, text),
    };
    let (name, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let action = action(name)?;
    let operands = if action == Action::Nothing { Vec::new() } else { operands(rest, names)? };
    // A label that is no place to go to is a name that nobody has declared.
    let is_known = |operand: &Operand| !matches!(operand, Operand::Label(_)) || action == Action::Jump;
    if let Some(unknown) = operands.iter().find(|operand| !is_known(operand)) {
        return Err(format!("{unknown:?} in {text}"));
    }
    Ok(Instruction { guard, action, operands, target: 0, line })
}

fn action(name: &str) -> Result<Action, String> {
    let unknown = || format!("{name} is not known here");
    let mut parts = name.split('.');
    let first = parts.next().unwrap_or_default();
    let parts: Vec<&str> = parts.collect();
    let has = |part: &str| parts.contains(&part);
    let types: Vec<Type> = parts.iter().filter_map(|part| Type::parse(part)).collect();
    let last = types.last().copied();
    let ty = || last.ok_or_else(unknown);
    let rounding = match () {
        _ if has("rm") || has("rmi") => Rounding::Down,
        _ if has("rp") || has("rpi") => Rounding::Up,
        _ if has("rz") || has("rzi") => Rounding::Zero,
        _ => Rounding::Near,
    };
    let space = match () {
        _ if has("param") => Space::Parameters,
        _ if has("global") => Space::Global,
        _ if has("shared") || has("shared::cluster") || has("shared::cta") => Space::Shared,
        _ if has("local") || has("const") => return Err(unknown()),
        _ => Space::Any,
    };
    let count = if has("v4") {
        4
    } else if has("v2") {
        2
    } else {
        1
    };
    Ok(match first {
        "griddepcontrol" | "prefetch" | "fence" | "membar" | "nop" => Action::Nothing,
        "ret" | "exit" => Action::Return,
        "bra" => Action::Jump,
        "ld" => Action::Load { space, count, ty: ty()? },
        "st" => Action::Store { space, count, ty: ty()? },
        "cvt" => {
            let [.., to, from] = types.as_slice() else {
                return Err(unknown());
            };
            let to_whole = ["rni", "rmi", "rpi", "rzi"].iter().any(|part| has(part));
            Action::Convert { to: *to, from: *from, rounding, to_whole, saturates: has("sat") }
        }
        "cvta" if has("to") && has("shared") => Action::ToShared,
        "cvta" if has("to") => Action::Compute(Compute::Move, Type::Bits(8), rounding),
        "cvta" if has("shared") => Action::ToAny,
        "cvta" if has("global") => Action::Compute(Compute::Move, Type::Bits(8), rounding),
        "mapa" => Action::OfBlock { is_any: !has("shared::cluster") },
        "setp" => {
            let comparison = parts.first().and_then(|part| Comparison::parse(part)).ok_or_else(unknown)?;
            let joined = parts.iter().find_map(|part| match *part {
                "and" => Some(Compute::And),
                "or" => Some(Compute::Or),
                "xor" => Some(Compute::Xor),
                _ => None,
            });
            Action::Compare(comparison, ty()?, joined)
        }
        "createpolicy" => Action::Compute(Compute::Move, Type::Bits(8), rounding),
        "bar" | "barrier" if has("sync") => Action::Meet,
        "barrier" if has("cluster") && has("arrive") => Action::ArriveInCluster,
        "barrier" if has("cluster") && has("wait") => Action::WaitForCluster,
        "cp" if has("bulk") && has("complete_tx::bytes") || name.contains("complete_tx::bytes") => {
            if name.contains("tensor") {
                return Err(unknown());
            }
            Action::Bring
        }
        "cp" if has("commit_group") => Action::CommitCopies,
        "cp" if has("wait_group") => Action::WaitForCopies { all: false },
        "cp" if has("wait_all") => Action::WaitForCopies { all: true },
        "cp" if has("async") && has("shared") && has("global") && !has("bulk") => {
            Action::Copy { has_policy: name.contains("cache_hint") }
        }
        "mbarrier" if has("init") => Action::BeginArrivals,
        "mbarrier" if has("arrive") && has("expect_tx") => Action::ExpectBytes,
        "mbarrier" if has("try_wait") && has("parity") => Action::HaveArrived,
        "shfl" => {
            let modes =
                [("bfly", Shuffle::Across), ("up", Shuffle::Up), ("down", Shuffle::Down), ("idx", Shuffle::From)];
            let mode = modes.into_iter().find(|(part, _)| has(part)).ok_or_else(unknown)?.1;
            Action::Together(Together::Shuffle(mode))
        }
        "mma" if has("m16n8k16") && has("row") && has("col") && types.first() == Some(&Type::Float(4)) => {
            let factor =
                types.get(1).copied().filter(|ty| matches!(ty, Type::Half | Type::Brain)).ok_or_else(unknown)?;
            Action::Together(Together::Multiply(factor))
        }
        "ldmatrix" if has("m8n8") => {
            let count = if has("x4") {
                4
            } else if has("x2") {
                2
            } else {
                1
            };
            Action::Together(Together::Matrices { count, turned: has("trans") })
        }
        "atom" | "red" => {
            let what = match () {
                _ if has("cas") => Atomic::CompareAndSwap,
                _ if has("exch") => Atomic::Exchange,
                _ => Atomic::Compute(parts.iter().find_map(|part| Compute::parse(part)).ok_or_else(unknown)?),
            };
            Action::Atomic { what, space, ty: ty()?, has_result: first == "atom" }
        }
        "shf" if has("l") && has("wrap") => Action::Compute(Compute::FunnelLeft, Type::Bits(4), rounding),
        "shf" if has("r") && has("wrap") => Action::Compute(Compute::FunnelRight, Type::Bits(4), rounding),
        "mul" if has("hi") => Action::Compute(Compute::MulHigh, ty()?, rounding),
        "mul" if has("wide") => Action::Compute(Compute::MulWide, ty()?, rounding),
        "mad" if has("wide") => Action::Compute(Compute::MadWide, ty()?, rounding),
        "mad" if has("hi") => return Err(unknown()),
        "min" | "max" if !has("NaN") && matches!(last, Some(Type::Float(_) | Type::Half | Type::Brain)) => {
            let what = if first == "min" { Compute::LeastNumber } else { Compute::LargestNumber };
            Action::Compute(what, ty()?, rounding)
        }
        _ => Action::Compute(Compute::parse(first).ok_or_else(unknown)?, ty()?, rounding),
    })
}
