// The identifiers that npm's `ipfs-unixfs-importer` gives to files: paths in, one CID a line out.
import { createReadStream } from 'node:fs'
import { createInterface } from 'node:readline'
import { pathToFileURL } from 'node:url'

const [modules, leaf, width] = process.argv.slice(2)
const home = (name) => pathToFileURL(`${modules}/${name}`).href
const { importer } = await import(home('ipfs-unixfs-importer/dist/src/index.js'))
const { fixedSize } = await import(home('ipfs-unixfs-importer/dist/src/chunker/fixed-size.js'))
const { balanced } = await import(home('ipfs-unixfs-importer/dist/src/layout/balanced.js'))

const kept = { async put (cid) { return cid }, async get () { throw new Error('nothing is read') } }
const options = () => leaf === undefined
  ? { profile: 'unixfs-v1-2025' }
  : {
      profile: 'unixfs-v1-2025',
      chunker: fixedSize({ chunkSize: Number(leaf) }),
      layout: balanced({ maxChildrenPerNode: Number(width) })
    }

for await (const path of createInterface({ input: process.stdin })) {
  let last
  for await (const entry of importer([{ content: createReadStream(path) }], kept, options())) last = entry.cid
  console.log(last.toString())
}
