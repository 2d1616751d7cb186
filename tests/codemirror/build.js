// CodeMirror as one file for the served explorer, with the licence of everything in it.
//
//     npm ci && npm run build        writes minitri/explore/page/codemirror.js
//
// The file is checked in, so that nobody needs npm to use minitri. Its head has a digest of this folder's files
// (tests/test_editor.py compares it), the version of each package, and the licences.

import {createHash} from 'node:crypto';
import {readFileSync, writeFileSync} from 'node:fs';
import {build} from 'esbuild';

const FILES = ['build.js', 'bundle.js', 'package.json', 'package-lock.json'];
const TARGET = '../../minitri/explore/page/codemirror.js';

const {outputFiles: [file], metafile} = await build({
  entryPoints: ['bundle.js'], bundle: true, minify: true, metafile: true, write: false,
  format: 'iife', globalName: 'codemirror', target: 'es2022', charset: 'ascii', legalComments: 'none',
});

/** The folders of the packages that esbuild has put into the file. */
const folders = [...new Set(Object.keys(metafile.inputs).map(path => path.match(/^node_modules\/(?:@[^/]+\/)?[^/]+/)?.[0]).filter(Boolean))].sort();
const licences = new Map(); // text → packages
for (const folder of folders) {
  const {name, version} = JSON.parse(readFileSync(`${folder}/package.json`)), text = readFileSync(`${folder}/LICENSE`, 'utf8').trim();
  licences.set(text, [...(licences.get(text) ?? []), `${name} ${version}`]);
}
const digest = FILES.reduce((hash, name) => hash.update(readFileSync(name)), createHash('sha256')).digest('hex');
const notices = [...licences].map(([text, packages]) => `${packages.join(', ')}\n\n${text}`).join('\n\n----\n\n');
writeFileSync(TARGET, `/* Made by tests/codemirror/build.js. Do not edit. sha256 of that folder: ${digest}\n\n${notices}\n*/\n${file.text}`);
console.log(`${TARGET}: ${folders.length} packages`);
