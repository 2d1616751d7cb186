// ---- share.js: a program with its sizes and its target, as a file or in a link ---------------------
// A file is the program itself. Its first line is a comment that `minitri explore FILE` and this page read:
//     # minitri explore -D M=512 -D B=2,4 --target cuda:80

const FIRST_LINE = /^# minitri explore((?: -D \w+=[\d,]*)*)(?: --target ([\w:]+))?\r?\n/;
const MOST = 64 << 10; // bytes of a file: what a request may have

/** {text, sizes, target} as the text of a file. */
function fileOf({text, sizes, target}) {
  const given = Object.entries(sizes).map(([name, value]) => ` -D ${name}=${Array.isArray(value) ? value.join() + (value.length === 1 ? ',' : '') : value}`);
  return `# minitri explore${given.join('')} --target ${target}\n${text}`;
}

/** {text, sizes, target} of the text of a file. Any text is a program; one without the first line is for any sizes. */
function programOf(text) {
  const line = text.match(FIRST_LINE);
  if (!line) return {text, sizes: {}};
  const sizes = Object.fromEntries(line[1].split(' -D ').slice(1).map(pair => pair.split('=')).filter(([, v]) => v !== '').map(([name, v]) => [name, parsedSize(v)]));
  return {text: text.slice(line[0].length), sizes, target: line[2]};
}

/** Saves a program where the browser saves files. */
function saved(request) {
  const name = [...request.text.matchAll(/^def ([A-Za-z_]\w{0,40})/gm)].at(-1)?.[1] ?? 'program';
  const address = URL.createObjectURL(new Blob([fileOf(request)], {type: 'text/plain'}));
  el('a', {href: address, download: `${name}.mt`}).click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

/** The program of a file that somebody has chosen or dropped. Throws an error whose message says what is wrong. */
async function programIn(file) {
  if (file.size > MOST) throw new Error(`${file.name} is larger than a program may be: ${MOST / 1024} KiB`);
  const text = await file.text();
  if (text.includes('\0')) throw new Error(`${file.name} is not a text`);
  return programOf(text);
}

/** Files may be dropped anywhere on a page. */
function droppable(app, opened) {
  const files = e => e.dataTransfer?.types.includes('Files');
  const on = (name, act) => app.addEventListener(name, e => files(e) && (e.preventDefault(), e.stopPropagation(), act(e)), true);
  on('dragover', () => app.classList.add('dropping'));
  on('dragleave', e => e.relatedTarget || app.classList.remove('dropping'));
  on('drop', e => { app.classList.remove('dropping'); opened(e.dataTransfer.files[0]); });
}

// -- links --

const url64 = bytes_ => btoa(String.fromCharCode(...bytes_)).replace(/\+/g, '-').replace(/\//g, '_').replace(/=+$/, '');

async function packedLink(request) {
  const stream = new Blob([JSON.stringify(request)]).stream().pipeThrough(new CompressionStream('deflate-raw'));
  return url64(new Uint8Array(await new Response(stream).arrayBuffer()));
}

const unpackedLink = text => unpacked(text.replace(/-/g, '+').replace(/_/g, '/'));
