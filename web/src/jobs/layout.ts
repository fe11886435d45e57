// The layout of the graph: layers with few crossings, each box near its neighbours.

export interface Box { id: string; layer: number; from: string[]; width: number; height: number }
export interface Place { x: number; y: number; width: number }
export interface Layout { places: Map<string, Place>; paths: Map<string, string>; width: number; height: number }

const GAP = 20, STEP_ACROSS = 52, STEP_DOWN = 40, WIDEST_STEP = 150, WIDEST_LISTED = 420, INDENT = 22, SWEEPS = 8;

interface Spot { id: string; layer: number; size: number; above: Spot[]; below: Spot[]; at: number }

/** Left to right if that fits, else top to bottom if that fits, else a list. */
export function laidOut(boxes: Box[], room: number): Layout {
  const tight = layered(boxes, true, STEP_ACROSS);
  if (tight.width <= room) {
    const steps = Math.max(...boxes.map((box) => box.layer));
    return layered(boxes, true, Math.min(WIDEST_STEP, STEP_ACROSS + (room - tight.width) / Math.max(1, steps)));
  }
  const down = layered(boxes, false, STEP_DOWN);
  return down.width <= room ? down : listed(boxes, room);
}

/** Spots per layer: one for each box, and one for each edge that crosses the layer. */
function spotted(boxes: Box[], across: boolean): { layers: Spot[][]; routes: Map<string, Spot[]> } {
  const layers: Spot[][] = Array.from({ length: Math.max(0, ...boxes.map((box) => box.layer + 1)) }, () => []);
  const known = new Map<string, Spot>();
  const add = (id: string, layer: number, size: number): Spot => {
    const spot = { id, layer, size, above: [], below: [], at: 0 };
    layers[layer]!.push(spot);
    return spot;
  };
  for (const box of boxes) known.set(box.id, add(box.id, box.layer, across ? box.height : box.width));
  const routes = new Map<string, Spot[]>();
  for (const box of boxes) {
    for (const id of box.from) {
      const route = [known.get(id)!];
      for (let layer = route[0]!.layer + 1; layer < box.layer; layer++) route.push(add("", layer, 8));
      route.push(known.get(box.id)!);
      route.slice(1).forEach((spot, i) => { spot.above.push(route[i]!); route[i]!.below.push(spot); });
      routes.set(`${id}→${box.id}`, route);
    }
  }
  return { layers, routes };
}

const middle = (spots: Spot[]): number => spots.reduce((sum, spot) => sum + spot.at, 0) / spots.length;

/** Places the spots of a layer, in their order, as close as possible to their wanted positions. */
function settled(layer: Spot[], wanted: number[]): void {
  const offset: number[] = [];
  layer.forEach((spot, i) => offset.push(i ? offset[i - 1]! + (layer[i - 1]!.size + spot.size) / 2 + GAP : 0));
  const blocks: { mean: number; size: number }[] = [];
  wanted.forEach((at, i) => {
    blocks.push({ mean: at - offset[i]!, size: 1 });
    while (blocks.length > 1 && blocks.at(-2)!.mean > blocks.at(-1)!.mean) {
      const last = blocks.pop()!, block = blocks.at(-1)!;
      block.mean = (block.mean * block.size + last.mean * last.size) / (block.size + last.size);
      block.size += last.size;
    }
  });
  let i = 0;
  for (const block of blocks) for (let n = 0; n < block.size; n++, i++) layer[i]!.at = block.mean + offset[i]!;
}

function arranged(layers: Spot[][]): void {
  for (const layer of layers) settled(layer, layer.map(() => 0));
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    const forward = sweep % 2 === 0;
    for (const layer of forward ? layers : [...layers].reverse()) {
      const near = (spot: Spot): Spot[] => (forward ? spot.above : spot.below);
      const wish = (spot: Spot): number => (near(spot).length ? middle(near(spot)) : spot.at);
      if (sweep < SWEEPS / 2) layer.sort((a, b) => wish(a) - wish(b));
      settled(layer, layer.map(wish));
    }
  }
}

function layered(boxes: Box[], across: boolean, step: number): Layout {
  const { layers, routes } = spotted(boxes, across);
  arranged(layers);
  const least = Math.min(0, ...layers.flat().map((spot) => spot.at - spot.size / 2));
  const most = Math.max(0, ...layers.flat().map((spot) => spot.at + spot.size / 2)) - least;
  const sized = new Map(boxes.map((box) => [box.id, box]));
  const begins: number[] = [];
  let end = 0;
  layers.forEach((layer, i) => {
    begins[i] = end;
    end += Math.max(...layer.map((spot) => { const box = sized.get(spot.id); return box ? (across ? box.width : box.height) : 0; })) + step;
  });
  const length = Math.max(0, end - step);
  const places = new Map<string, Place>();
  for (const spot of layers.flat()) {
    const side = spot.at - least - spot.size / 2, along = begins[spot.layer]!;
    if (spot.id) places.set(spot.id, { width: sized.get(spot.id)!.width, ...(across ? { x: along, y: side } : { x: side, y: along }) });
  }
  const deep = (layer: number): number => (begins[layer + 1] ?? length + step) - step;
  const paths = new Map<string, string>();
  for (const [name, route] of routes) {
    const points = route.flatMap((spot, i): [number, number][] => {
      const box = sized.get(spot.id), side = spot.at - least, begin = begins[spot.layer]!;
      const out = box ? begin + (across ? box.width : box.height) : deep(spot.layer);
      return i === 0 ? [[out, side]] : i === route.length - 1 ? [[begin, side]] : [[begin, side], [out, side]];
    });
    paths.set(name, curved(points, across));
  }
  return { places, paths, width: across ? length : most, height: across ? most : length };
}

function curved(points: [number, number][], across: boolean): string {
  const written = (along: number, side: number): string => (across ? `${along} ${side}` : `${side} ${along}`);
  return points.map(([along, side], i) => {
    if (i === 0) return `M${written(along, side)}`;
    const [before, beside] = points[i - 1]!, half = (before + along) / 2;
    return side === beside ? `L${written(along, side)}` : `C${written(half, beside)} ${written(half, side)} ${written(along, side)}`;
  }).join("");
}

/** One below the other, each indented further than its inputs. */
function listed(boxes: Box[], room: number): Layout {
  const places = new Map<string, Place>(), paths = new Map<string, string>();
  const sized = new Map(boxes.map((box) => [box.id, box]));
  let y = 0;
  for (const box of boxes) {
    const x = Math.min(box.layer, 4) * INDENT;
    places.set(box.id, { x, y, width: Math.max(140, Math.min(WIDEST_LISTED, room - x)) });
    for (const id of box.from) {
      const above = places.get(id)!;
      paths.set(`${id}→${box.id}`, `M${above.x + 10} ${above.y + sized.get(id)!.height}V${y + box.height / 2}H${x}`);
    }
    y += box.height + GAP;
  }
  return { places, paths, width: Math.max(0, ...boxes.map((box) => places.get(box.id)!.x + places.get(box.id)!.width)), height: Math.max(0, y - GAP) };
}
